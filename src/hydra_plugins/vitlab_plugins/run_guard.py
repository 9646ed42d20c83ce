"""Refuse, before Hydra makes a folder, what could not be run in it."""

import os
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from vitlab.checkpoints.run_folder import LATEST, find_checkpoint, not_begun
from vitlab.config.command import Refused, check_start, check_sweep
from vitlab.config.identity import AUTO
from vitlab.config.refusals import as_refusal
from vitlab.errors import StorageError


class RunGuard(Callback):
    """Checks that the run or checkpoint that is named exists (status 4), and that the folder to write to can be written
    (status 6)."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        HydraConfig.instance().set_config(config)  # the name of a run speaks of its choices
        try:
            check_start(config)
            for key in ("resume", "run"):
                value = OmegaConf.select(config, key, throw_on_missing=False)
                if value is not None and not (key == "resume" and (value == AUTO or not_begun(value))):
                    find_checkpoint(value, *(LATEST if key == "resume" else ("best", *LATEST)))
            check_writable(Path(config.hydra.run.dir))
        except Exception as error:
            refuse(error)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        HydraConfig.instance().set_config(config)
        try:
            check_sweep(config)
            check_writable(Path(config.hydra.sweep.dir))
        except Exception as error:
            refuse(error)


def refuse(error: Exception) -> NoReturn:
    """Raise what ends the command: after any other error of a callback Hydra would go on."""
    refusal = as_refusal(error)
    if refusal is None:
        raise error
    raise Refused(refusal) from error


def check_writable(folder: Path) -> None:
    """Raise StorageError unless `folder`, or the nearest one above it that exists, can be written."""
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    if not existing.is_dir():
        raise StorageError(f"cannot write the run to {folder}: {existing} is a file")
    probe = existing / f".vitlab-{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StorageError(f"cannot write the run to {folder}: {error.strerror}; give another hydra.run.dir") from error
