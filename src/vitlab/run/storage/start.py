"""Start a run: anew in a folder of its own, or from the state that an earlier start has left."""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from vitlab.checkpoints.run_folder import check_unused, find_sweep_job, find_unstarted_job, make_folders, run_folder
from vitlab.checkpoints.run_identity import RunIdentity, check_folder, parse_identity, read_identity
from vitlab.checkpoints.run_lock import leave, take
from vitlab.config.identity import AUTO, find_own_run, select_machine_overrides
from vitlab.config.job import Job
from vitlab.config.nodes import check_values, merge_node, remove_keys, resolve_config
from vitlab.config.redaction import Redaction, check_kept
from vitlab.config.refusals import find_status
from vitlab.config.resume import build_resumed_config
from vitlab.config.stored_config import OF_A_SWEEP, config_digest, make_portable, read_saved_config
from vitlab.config.sweep_jobs import read_frozen_run
from vitlab.data import DataModule
from vitlab.distributed.agreement import broadcast_from_rank_zero, open_store_of_start
from vitlab.distributed.environment import has_other_launched_processes, is_other_rank
from vitlab.errors import CheckpointError
from vitlab.machine import describe_arithmetic
from vitlab.reports.run import read_end
from vitlab.run.checks.preconditions import check_agreement, check_inputs
from vitlab.run.storage.newest_state import newest_state, read_state
from vitlab.run.storage.provenance import digest_code, versions


@dataclass(frozen=True)
class Start:
    """The config of a run, and the folder it is written to; `kept` removes secrets from what is stored.

    A resumed run has the file of its `state`, and its content as `checkpoint` until the fit reads it again. With
    resume=auto, `mark` is the digest by which the same command finds the run again. `ended` is as in `RunPlace`.
    """

    cfg: DictConfig
    job: Job
    folder: Path
    kept: Redaction
    identity: RunIdentity
    choices: dict[str, str]
    state: Path | None
    checkpoint: dict[str, Any]
    first_step: int
    mark: str | None
    ended: int | None = None

    @property
    def sweep(self) -> Path | None:
        """The folder of the sweep that the run is a job of."""
        return self.folder.parent if find_sweep_job(self.folder) else None

    def is_complete(self, num_steps: int) -> bool:
        """Whether the run has been tested at the step it resumes from, and `num_steps` ask for no more; or, where it
        has stopped early, no other key."""
        keys = {one.key_or_group for one in self.job.parse_overrides()}
        return self.ended == self.first_step and (num_steps <= self.first_step or keys <= {"resume", "break_lock"})

    @property
    def words(self) -> list[str]:
        """The words of the command that starts the run, for a job of a sweep those that it was frozen with, without
        secrets."""
        overrides = self.checkpoint.get("run", {}).get("words", self.job.overrides)
        words: list[str] = self.kept([*self.job.options, *overrides])
        return words

    def record(self, datamodule: DataModule, device_batch_size: int, processes: int) -> dict[str, Any]:
        """Give what rebuilds the run from a checkpoint, in plain types, and what `verify` compares."""
        config = make_portable(self.cfg)
        record = {
            "config": config,
            "choices": self.choices,
            "class_names": list(datamodule.class_names),
            **datamodule.vocabularies(),
            "device_batch_size": device_batch_size,
            "fingerprint": datamodule.fingerprint,
            "versions": versions(),
            "machine": describe_arithmetic(processes),
            "digests": {"config": config_digest(self.cfg), "code": digest_code(self.cfg)},
        }
        return {**self.kept(record), "identity": asdict(self.identity)}


PLACE = "VITLAB_PLACE"  # in the environment of the processes that a run starts


class RunPlace(NamedTuple):
    """The folder of a run, the run or checkpoint that it resumes from, and the step at which the run has ended, None if
    it has not: in plain types, for other processes."""

    folder: str
    resume: str | None
    ended: int | None = None


def watch_others() -> AbstractContextManager[None]:
    """Watch the processes that srun or torchrun started with this one, if there are any."""
    if not has_other_launched_processes():
        return nullcontext()
    from vitlab.distributed.presence import watch_launched

    return watch_launched(open_store_of_start, find_status)


@contextmanager
def claim_folder(cfg: DictConfig, job: Job) -> Iterator[RunPlace]:
    """Find the folder of the run, or make it, and lock it while no other process may write there. One that is empty in
    the end is removed, with those above it that were made. Raises VitlabError for one that is in use, or that holds a
    run already."""
    if PLACE in os.environ and is_other_rank():
        yield RunPlace(*json.loads(os.environ[PLACE]))
        return
    with make_folders() as make, watch_others():
        if has_other_launched_processes():
            place = RunPlace(*broadcast_from_rank_zero("folder", lambda: find_place(cfg, job, make)))
        else:
            place = find_place(cfg, job, make)
        os.environ[PLACE] = json.dumps(place)  # for the processes that are started beside this one
        try:
            yield place
        finally:
            os.environ.pop(PLACE, None)
            leave(Path(place.folder))


def find_place(cfg: DictConfig, job: Job, make: Callable[[Path, bool], Path]) -> RunPlace:
    """Find the folder of resume=, or make that of a new run, and lock it. Two that start in one second get a folder
    each. Raises VitlabError."""
    if cfg.resume == AUTO:
        found = find_own_run(cfg, [job.folder] if job.named else sorted(job.folder.parent.glob("*")))
        if found is not None:
            take(found, break_lock=cfg.break_lock)
            return RunPlace(str(found), str(found), read_end(found))
    elif cfg.resume is not None:
        folder = run_folder(cfg.resume).absolute()
        make(folder, False)  # a job of a sweep that has not begun yet has none
        take(folder, break_lock=cfg.break_lock)
        return RunPlace(str(folder), str(cfg.resume), read_end(folder))
    if job.named:
        check_unused(job.folder)
    folder = make(job.folder, not job.named)
    take(folder, break_lock=cfg.break_lock)
    return RunPlace(str(folder), None)


def start_or_resume(cfg: DictConfig, job: Job, place: RunPlace) -> Start:
    """Take the config as it was composed, or, for a run that is resumed, that of the run. Raises VitlabError for values
    that no run can have, and for a folder that holds a checkpoint of another run."""
    path: Path | None = None
    checkpoint: dict[str, Any] = {}
    composed = cfg
    if place.resume is not None:
        if home := find_unstarted_job(place.resume):
            checkpoint = read_frozen_run(home)
            saved = read_saved_config(checkpoint, str(home), begun=False)
        else:
            path, checkpoint = newest_state(place.resume)
            saved = read_saved_config(checkpoint, str(path))
        words = select_machine_overrides(job.overrides) if cfg.resume == AUTO else job.overrides
        cfg = build_resumed_config(saved, checkpoint["run"]["choices"], cfg, words)
    cfg = merge_node(remove_keys(cfg, OF_A_SWEEP), {"resume": None, "break_lock": False})
    check_inputs(cfg)
    check_values(cfg)
    check_kept(resolve_config(cfg))
    check_agreement(cfg)
    before, folder = checkpoint.get("run", {}), Path(place.folder)
    kept = Redaction(cfg, composed)
    own = find_identity(cfg, before, folder, kept)
    if place.resume is not None and not is_other_rank():
        check_folder(folder, own)
    return Start(
        cfg,
        job,
        folder,
        kept,
        identity=own,
        choices=before.get("choices") or dict(job.choices),
        state=path,
        checkpoint=checkpoint,
        first_step=int(checkpoint.get("global_step", 0)),
        mark=config_digest(composed) if composed.resume == AUTO else None,
        ended=place.ended,
    )


def find_identity(cfg: DictConfig, before: dict[str, Any], folder: Path, kept: Redaction) -> RunIdentity:
    """Return the identity of the run: from its state, from its folder if the state stores none or a sweep's job has
    saved no state yet, or a new one."""
    if own := parse_identity(before.get("identity"), folder) if before else None:
        return own
    if before and (own := read_identity(folder)) and before.get("id") in (None, own.id):
        return own
    name = kept.text(f"{cfg.name}/{folder.absolute().name}")
    return RunIdentity(before.get("id") or secrets.token_hex(4), name, config_digest(cfg))


def start_elsewhere(
    record: dict[str, Any], origin: Path, folder: Path, state: Path | None, changes: Mapping[str, Any] | None = None
) -> Start:
    """Start what a run's `record` in the file `origin` says of it in another folder, from a state or from step 0, with
    `changes` of its config and without its loggers. Raises VitlabError for a record that no run can have."""
    identity = parse_identity(record.get("identity"), origin)
    if identity is None:
        raise CheckpointError(f"{origin} does not say which run it is of")
    config = merge_node(read_saved_config({"run": record}, str(origin)), changes or {})
    config = merge_node(config, {"resume": None, "break_lock": False})
    config.logger = {}
    checkpoint = read_state(state) if state else {}
    return Start(
        config,
        Job.current(),
        folder,
        Redaction(config),
        identity,
        record.get("choices") or {},
        state,
        checkpoint,
        int(checkpoint.get("global_step", 0)),
        mark=None,
    )
