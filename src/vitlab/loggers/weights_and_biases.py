"""Weights & Biases: online when there are credentials and the server answers, else offline; it never asks or waits."""

import netrc
import os
import shlex
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.invocation import shorten_path
from vitlab.loggers.run_logger import RunLogger

ANSWER_SECONDS = 10


class WeightsAndBiases(RunLogger, WandbLogger):
    """Lightning's WandbLogger around a run that this file starts and ends.

    A sweep's jobs share `group`. `run_id` names a new run, or the one to continue. Every file W&B writes lies in
    `folder`. `arguments` are the command's, as W&B is to keep them. WANDB_MODE (online, offline, disabled) wins over
    what is found out here.
    """

    service = "W&B"

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        tags: list[str],
        folder: str,
        name: str,
        group: str | None,
        run_id: str,
        run_config: dict[str, Any],
        arguments: list[str],
    ):
        super().__init__(name=name, save_dir=folder, project=project, id=run_id, log_model=False)
        self.settings: dict[str, Any] = {
            "project": project,
            "entity": entity,
            "tags": list(tags),
            "dir": folder,
            "name": name,
            "group": group,
            "id": run_id,
            "resume": "allow",
            "config": run_config,
        }
        self.arguments = list(arguments)
        self.offline_folder: str | None = None
        self._experiment: Any = None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        if self._experiment is None:
            with arguments_replaced(self.arguments):
                self._experiment = start(self.settings)
            settings = self._experiment.settings
            self.offline_folder = settings.sync_dir if settings.mode == "offline" else None
            self._experiment.define_metric("trainer/global_step")
            self._experiment.define_metric("*", step_metric="trainer/global_step", step_sync=True)
        return self._experiment

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.guard(super().log_metrics, metrics, step)

    @rank_zero_only
    def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Any) -> None:
        self.guard(super().log_image, key, images, step, **kwargs)

    @rank_zero_only
    def log_table(self, key: str, *args: Any, **kwargs: Any) -> None:
        self.guard(super().log_table, key, *args, **kwargs)

    @rank_zero_only
    def close(self, exit_code: int) -> None:
        """End the run, so that the next job of a sweep starts its own."""
        if self._experiment is None:
            return
        try:
            self._experiment.finish(exit_code=exit_code)
        except Exception as error:
            warnings.warn(f"W&B could not finish its run ({error}); metrics.csv is complete", stacklevel=2)
            import wandb

            wandb.teardown()  # the service process is gone: the next run starts another
        self._experiment = None

    def upload_command(self) -> str | None:
        folder = self.offline_folder
        return f"wandb sync {shlex.quote(str(shorten_path(Path(folder))))}" if folder else None


@contextmanager
def arguments_replaced(arguments: list[str]) -> Iterator[None]:
    """Put other words in sys.argv, which W&B keeps, secrets included."""
    own = sys.argv
    sys.argv = [own[0], *arguments]
    try:
        yield
    finally:
        sys.argv = own


def start(arguments: dict[str, Any]) -> Any:
    """Start a W&B run, online if that works within ANSWER_SECONDS, else offline with one warning."""
    folder = Path(arguments["dir"]) / "wandb"
    folder.mkdir(parents=True, exist_ok=True)
    for key in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR"):
        os.environ[key] = str(folder / key.split("_")[1].lower())
    import wandb

    settings = wandb.Settings(init_timeout=ANSWER_SECONDS, login_timeout=ANSWER_SECONDS, silent=True)
    if hasattr(sys.stdout, "redaction"):  # W&B would keep what is printed as it was before secrets are left out
        settings.console = "off"
    mode: Any = os.environ.get("WANDB_MODE")
    if mode is None:
        mode = "online" if has_credentials() and answers() else "offline"
    try:
        return wandb.init(mode=mode, settings=settings, reinit="finish_previous", **arguments)
    except wandb.errors.Error as error:
        if mode != "online":
            raise
        warnings.warn(f"W&B did not start online ({error}); this run is logged offline", stacklevel=2)
        wandb.teardown()  # it still holds the run's id
        return wandb.init(mode="offline", settings=settings, reinit="finish_previous", **arguments)


def server() -> str:
    return os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")


def has_credentials() -> bool:
    """Whether the user has given a key: WANDB_API_KEY, or an entry in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(urlparse(server()).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def answers() -> bool:
    """Whether the W&B server says anything within ANSWER_SECONDS."""
    try:
        urllib.request.urlopen(server(), timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, HTTPException, ValueError) as error:
        warnings.warn(f"{server()} does not answer ({error}); this run is logged offline", stacklevel=2)
        return False
    return True
