"""A sweep's jobs as one table, best first, rewritten after every job."""

import json
import time
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.vitlab_plugins.resolvers import better
from hydra_plugins.vitlab_plugins.seed_table import COLUMNS, write_seed_table
from vitlab.atomic_files import write_csv, write_json
from vitlab.config.job import other_rank
from vitlab.errors import VitlabError

OUTCOME = "job.json"


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
        write_json(folder / OUTCOME, outcome)
        rows = write_table(folder.parent)
        print(f"\n{len(rows)} job(s) of this sweep, best first, in {folder.parent / 'results.csv'}")
        print_rows(rows)
        if seeds := write_seed_table(folder.parent, outcomes_of(folder.parent)):
            print(f"\nmeans over seeds and their 95 % intervals, in {folder.parent / 'seeds.csv'}")
            print_rows(telling([row for row in seeds if row["metric"].endswith(("/acc1", "/map"))] or seeds))


def as_written(path: Path) -> Any:
    """A YAML of a run's folder, which may be anybody's: no reference in it is followed."""
    return OmegaConf.to_container(OmegaConf.load(path), resolve=False)


def outcomes_of(sweep: Path) -> list[dict[str, Any]]:
    """What the jobs of a sweep came to."""
    return [json.loads(path.read_text()) for path in sorted(sweep.glob(f"*/{OUTCOME}"))]


def write_table(sweep: Path) -> list[dict[str, Any]]:
    """results.csv of a sweep's folder, from the outcomes of its jobs; the rows, best first, failed jobs last."""
    outcomes = outcomes_of(sweep)
    sign = {"min": 1, "max": -1}
    outcomes.sort(
        key=lambda o: (o["status"] != "done", o["score"] is None, (o["score"] or 0) * sign[better(str(o["monitor"]))])
    )
    rows = [
        {str(o["monitor"]): o["score"], **o["overrides"], "seconds": o["seconds"], "status": o["status"]}
        | {"folder": o["folder"]}
        for o in outcomes
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write_csv(sweep / "results.csv", columns, [[row.get(name) for name in columns] for row in rows])
    return rows


def telling(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the columns of overrides that are the same in all of them."""
    same = [name for name in rows[0] if name not in COLUMNS and len({row.get(name) for row in rows}) == 1]
    return [{name: value for name, value in row.items() if name not in same} for row in rows]


def print_rows(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "folder"]
    table = Table(*columns)
    for row in rows:
        values = [row.get(name) for name in columns]
        table.add_row(*[f"{v:.4f}" if isinstance(v, float) else "" if v is None else str(v) for v in values])
    Console(markup=False).print(table)
