"""Start a run: anew in a folder of its own, or from the state that an earlier start has left."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitlab.checkpoints.run_folder import check_unused, frozen_job, not_begun, run_folder
from vitlab.checkpoints.run_lock import leave, take
from vitlab.config.build import plain
from vitlab.config.frozen import OF_A_SWEEP, frozen_run
from vitlab.config.identity import AUTO, of_the_machine
from vitlab.config.job import Job
from vitlab.config.nodes import Node, without
from vitlab.config.redaction import Redaction, check_kept
from vitlab.config.references import check_values
from vitlab.config.resume import resumed_config
from vitlab.config.stored_config import portable, saved_config
from vitlab.data import DataModule
from vitlab.distributed.environment import other_rank
from vitlab.run.preconditions import check_agreement
from vitlab.run.provenance import versions
from vitlab.run.saved_run import newest_state


@dataclass(frozen=True)
class Start:
    """The config that holds, and the folder it is written to; `kept` leaves out what is not to be stored.

    A resumed run has the file of its `state`, and its content as `checkpoint` until the fit reads it again.
    """

    cfg: Node
    job: Job
    folder: Path
    kept: Redaction
    run_id: str
    choices: dict[str, str]
    state: Path | None
    checkpoint: dict[str, Any]
    first_step: int

    def record(self, datamodule: DataModule, device_batch_size: int) -> dict[str, Any]:
        """Give what rebuilds the run from a checkpoint, in plain types."""
        config = {**portable(self.cfg), "resume": None, "break_lock": False}
        if datamodule.found:
            config["found"] = datamodule.found
        record = {
            "config": config,
            "choices": self.choices,
            "class_names": list(datamodule.class_names),
            **datamodule.vocabularies(),
            "device_batch_size": device_batch_size,
            "fingerprint": datamodule.fingerprint,
            "versions": versions(),
            "wandb_id": self.run_id,
        }
        return self.kept(record)


@contextmanager
def taken_folder(cfg: Node, job: Job) -> Iterator[Path]:
    """Lock the folder of the run while no other process may write there. Raises VitlabError for one that is in use, or
    that holds a run already."""
    folder = job.folder if cfg.resume is None else run_folder(cfg.resume).absolute()
    if other_rank():
        yield folder
        return
    if cfg.resume is None:
        check_unused(folder)
    take(folder, break_lock=cfg.break_lock)
    try:
        yield folder
    finally:
        leave(folder)


def resume_or_new(cfg: Node, job: Job, folder: Path) -> Start:
    """Take the config as it was composed, or, with resume=, that of the run. Raises VitlabError for values that no run
    can have."""
    path: Path | None = None
    checkpoint: dict[str, Any] = {}
    if cfg.resume is not None:
        if home := not_begun(cfg.resume):
            checkpoint = frozen_run(home)
            saved = saved_config(checkpoint, str(home), begun=False)
        else:
            path, checkpoint = newest_state(cfg.resume)
            saved = saved_config(checkpoint, str(path))
        words = of_the_machine(job.overrides) if f"resume={AUTO}" in job.overrides else job.overrides
        cfg = resumed_config(saved, checkpoint["run"]["choices"], cfg, words)
    if frozen_job(folder):
        job = replace(job, sweep=folder.parent)
    cfg = without(cfg, OF_A_SWEEP)
    check_values(cfg)
    check_kept(plain(cfg))
    check_agreement(cfg)
    before = checkpoint.get("run", {})
    return Start(
        cfg,
        job,
        folder,
        kept=Redaction(cfg),
        run_id=before.get("wandb_id") or secrets.token_hex(4),
        choices=before.get("choices") or dict(job.choices),
        state=path,
        checkpoint=checkpoint,
        first_step=int(checkpoint.get("global_step", 0)),
    )
