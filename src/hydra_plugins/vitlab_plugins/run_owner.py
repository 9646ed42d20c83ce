"""A run's folder is its own: made for it before Hydra writes there, taken for as long as the run is in it, and without
the secrets that Hydra would keep."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, read_write

from hydra_plugins.vitlab_plugins.run_guard import refuse
from vitlab.checkpoints.run_folder import check_unused, make_new, run_folder
from vitlab.checkpoints.run_lock import take
from vitlab.config.redaction import Redaction
from vitlab.distributed.environment import other_rank
from vitlab.errors import VitlabError


class RunOwner(Callback):
    """Two starts in one second have a folder each; one that is named must be free (status 2) and not in use (4)."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        if other_rank():
            return
        try:
            if config.resume is not None:
                folder = run_folder(config.resume)
                folder.mkdir(exist_ok=True)  # that of a sweep's job, which was not begun yet
            elif given(config, "hydra.run.dir"):
                folder = Path(config.hydra.run.dir)
                check_unused(folder)
                folder.mkdir(parents=True, exist_ok=True)
            else:
                folder = make_new(Path(config.hydra.run.dir))
                with read_write(config.hydra.run):
                    config.hydra.run.dir = str(folder)
            take(folder, break_lock=config.break_lock)
        except VitlabError as error:
            refuse(error)

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


def given(config: DictConfig, key: str) -> bool:
    """Whether the command line names it."""
    return any(override.lstrip("+").startswith(f"{key}=") for override in config.hydra.overrides.hydra)
