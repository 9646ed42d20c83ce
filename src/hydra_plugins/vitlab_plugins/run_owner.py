"""A run's folder is its own: made for it before Hydra writes there, taken for as long as the run is in it, and without
the secrets that Hydra would keep."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from hydra_plugins.vitlab_plugins.run_guard import refuse
from vitlab.checkpoints.run_folder import check_unused, has_state, make_new, run_folder
from vitlab.checkpoints.run_lock import take
from vitlab.config.identity import AUTO, mark, own_run
from vitlab.config.redaction import Redaction
from vitlab.distributed.agreement import told_by_first
from vitlab.distributed.environment import other_rank, several_launched, started_by_us
from vitlab.errors import VitlabError
from vitlab.reports.run import result_of


class RunOwner(Callback):
    """Two starts in one second have a folder each; one that is named must be free (status 2) and not in use (4)."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            if started_by_us() or (other_rank() and not several_launched()):
                if config.resume == AUTO:  # the folder is given, and holds a state where it is gone on with
                    told = str(config.hydra.run.dir)
                    set_to(config, told, told if has_state(Path(told)) else None)
                return
            if several_launched():
                folder, resume, done = told_by_first("folder", lambda: own_folder(config))
            else:
                folder, resume, done = own_folder(config)
        except VitlabError as error:
            refuse(error)
        set_to(config, folder, resume)
        if other_rank():
            with open_dict(config.hydra), read_write(config.hydra):
                config.hydra.output_subdir = None
                config.hydra.job.name = f"{config.hydra.job.name}_{socket.gethostname()}_{os.getpid()}"
        elif done:
            print(f"{folder} has come to its end: nothing is left to do")
        if done:
            sys.exit(0)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if not (given(config, "hydra.sweep.dir") or config.sweep or config.hydra.runtime.choices.get("study")):
            with read_write(config.hydra.sweep):
                config.hydra.sweep.dir = str(make_new(Path(config.hydra.sweep.dir)))

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        if config.hydra.output_subdir is None or other_rank():
            return
        folder = Path(config.hydra.runtime.output_dir)
        kept = Redaction(config)
        for path in (folder / config.hydra.output_subdir).glob("*.yaml"):
            kept.clean(path)


def own_folder(config: DictConfig) -> tuple[str, str | None, bool]:
    """Take the folder of the run: that of resume=, or a new one. Returns it, what is resumed, and whether nothing of it
    is left to do. Raises VitlabError."""
    if config.resume == AUTO:
        chosen = Path(config.hydra.run.dir)
        there = [chosen] if given(config, "hydra.run.dir") else sorted(chosen.parent.glob("*"))
        found = own_run(config, there)
        if found is not None:
            take(found, break_lock=config.break_lock)
            return str(found), str(found), result_of(found) is not None
    elif config.resume is not None:
        folder = run_folder(config.resume)
        folder.mkdir(exist_ok=True)  # a job of a sweep that has not begun yet
        take(folder, break_lock=config.break_lock)
        return str(folder), str(config.resume), False
    folder = Path(config.hydra.run.dir)
    if given(config, "hydra.run.dir"):
        check_unused(folder)
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = make_new(folder)
    take(folder, break_lock=config.break_lock)
    if config.resume == AUTO:
        mark(folder, config)
    return str(folder), None, False


def set_to(config: DictConfig, folder: str, resume: str | None) -> None:
    with read_write(config), read_write(config.hydra.run):
        config.resume = resume
        config.hydra.run.dir = folder


def given(config: DictConfig, key: str) -> bool:
    """Whether the command line names the folder."""
    return any(override.lstrip("+").startswith(f"{key}=") for override in config.hydra.overrides.hydra)
