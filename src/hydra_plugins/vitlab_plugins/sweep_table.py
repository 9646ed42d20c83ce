"""Keeps what each job of a sweep came to, and makes the tables of the sweep anew after it."""

import time
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from vitlab.distributed.environment import other_rank
from vitlab.errors import VitlabError
from vitlab.reports.sweep import add_outcome


class SweepTable(Callback):
    """Writes job.json into each job's folder, and results.csv into the sweep's from all that lie there; also when a job
    of a sweep is gone on with by resume=.

    Hydra leaves on_multirun_end out after a failed job, so that the table is made at the end of every job.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.started = time.monotonic()

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        folder = Path(config.hydra.runtime.output_dir)
        overrides, monitor = list(job_return.overrides or []), config.get("monitor")
        if config.hydra.mode != RunMode.MULTIRUN:
            if config.get("resume") is None or not (folder.parent / "multirun.yaml").is_file() or other_rank():
                return
            overrides = [str(one) for one in as_written(folder / ".hydra" / "overrides.yaml")]
            monitor = as_written(folder / "config.yaml").get("monitor")  # that of the run
        outcome = {
            "folder": folder.name,
            "status": "done",
            "monitor": monitor,
            "seconds": round(time.monotonic() - self.started, 1),
            "overrides": dict(override.lstrip("+~").split("=", 1) for override in overrides),
        }
        if job_return.status == JobStatus.COMPLETED:
            outcome["score"] = job_return.return_value
        else:
            error = job_return._return_value
            name = type(error).__name__
            outcome |= {"status": f"failed: {name}: {error}".split("\n")[0], "score": None}
            if isinstance(error, VitlabError):
                print(f"\n{name}: {error}", flush=True)
        add_outcome(folder, outcome)


def as_written(path: Path) -> Any:
    """A YAML of a run's folder, which may be anybody's: no reference in it is followed."""
    return OmegaConf.to_container(OmegaConf.load(path), resolve=False)
