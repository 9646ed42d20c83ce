"""Weights & Biases: online when there are credentials and the server answers, else offline; it never asks or waits."""

import netrc
import os
import shlex
import signal
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

import yaml
from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.invocation import shorten_path
from vitlab.loggers.metrics_csv import read_rows
from vitlab.loggers.run_logger import RunLogger
from vitlab.ranges import Natural, Positive

ANSWER_SECONDS = 10
STEP = "trainer/global_step"  # Lightning's name of the optimizer step
ARTIFACTS = {"model": "checkpoints/best.ckpt", "predictions": "*_predictions.csv"}  # files by type
PREEMPTED = {128 + number for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)}  # W&B's agents stop by SIGTERM


class WeightsAndBiases(RunLogger, WandbLogger):
    """Lightning's WandbLogger around a run that this file starts and ends.

    A sweep's jobs share `group`. `run_id` names a new run, or the one to continue: from `first_step` on, W&B is sent
    what it has not received yet. Every file W&B writes lies in `folder`. `arguments` are the command's, as W&B is to
    keep them. With `artifacts`, best.ckpt and the predictions of a finished run are uploaded. A run that has ended
    waits at most `upload_minutes` for W&B to take what is left. WANDB_MODE (online, offline, disabled) wins over what
    is found out here.
    """

    service = "W&B"

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        tags: list[str],
        artifacts: bool,
        upload_minutes: Positive,
        folder: str,
        name: str,
        group: str | None,
        run_id: str,
        first_step: Natural,
        run_config: dict[str, Any],
        arguments: list[str],
    ):
        super().__init__(name=name, save_dir=folder, project=project, id=run_id, log_model=False)
        self.upload_seconds = 60 * upload_minutes
        self.settings: dict[str, Any] = {
            "project": project,
            "entity": entity,
            "tags": list(tags),
            "dir": folder,
            "name": name,
            "group": group,
            "id": run_id,
            "resume": "allow",
            "config": rename_swept_groups(run_config),
        }
        self.folder, self.first_step, self.artifacts = Path(folder), first_step, artifacts
        self.arguments = list(arguments)
        self.received: dict[str, Any] = {}  # the last values that W&B has from earlier starts, by name
        self.offline_folder: str | None = None
        self._experiment: Any = None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        if self._experiment is None:
            with arguments_replaced(self.arguments):
                self._experiment = start(self.settings, self.upload_seconds)
            settings = self._experiment.settings
            self.offline_folder = settings.sync_dir if settings.mode == "offline" else None
            self._experiment.define_metric(STEP)
            self._experiment.define_metric("*", step_metric=STEP, step_sync=True)
            self.received = dict(self._experiment.summary) if self._experiment.resumed else {}
            self._send_earlier_rows()
        return self._experiment

    def _send_earlier_rows(self) -> None:
        """Send what W&B lacks of the rows in metrics.csv, up to the step that the run resumes from: a start that is
        killed loses what it has not sent yet. Offline, all rows are taken, unless an earlier start was online or has
        been synced."""
        last, path, own = self.received.get(STEP, -1), self.folder / "metrics.csv", self.folder / "wandb"
        if last > self.first_step:
            print(f"W&B already has steps {self.first_step + 1} to {last} of this run, and keeps them as they are")
        if self.offline_folder and any([*own.glob("run-*"), *own.glob("offline-run-*/*.synced")]):
            return
        for row in read_rows(path.read_bytes()) if path.is_file() else ():
            if (step := row.pop("step", -1)) in range(self.first_step + 1):
                self.log_metrics(row, step)

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.guard(self._log_new_metrics, metrics, step)

    def _log_new_metrics(self, metrics: dict[str, Any], step: int | None) -> None:
        """Log metrics, without those that W&B has received from an earlier start."""
        run, last = self.experiment, self.received.get(STEP, -1)
        if step is not None and step <= last:
            new = {name: value for name, value in metrics.items() if self.received.get(name) != value}
            metrics = new if step == last else {}
        if metrics:
            run.log(metrics if step is None else {**metrics, STEP: step})

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
            if self.artifacts and exit_code == 0:
                self._log_artifacts()
            if exit_code in PREEMPTED:
                self._experiment.mark_preempting()  # a sweep of W&B's gives the run to an agent again
            self._experiment.finish(exit_code=exit_code)
        except Exception as error:
            rest = f"metrics.csv is complete, and {format_sync(self._experiment.settings.sync_dir)} sends the rest"
            warnings.warn(f"W&B could not finish its run ({error}); {rest}", stacklevel=2)
            import wandb

            wandb.teardown()  # the service process is gone: the next run starts another
        self._experiment = None

    def _log_artifacts(self) -> None:
        """Upload the best model and the predictions, from the files that the run has written."""
        import wandb

        for kind, pattern in ARTIFACTS.items():
            artifact = wandb.Artifact(f"{kind}-{self._experiment.id}", kind)
            for path in sorted(self.folder.glob(pattern)):
                artifact.add_file(str(path), skip_cache=True)
            if artifact.manifest.entries:
                self._experiment.log_artifact(artifact)

    def upload_command(self) -> str | None:
        return format_sync(self.offline_folder) if self.offline_folder else None


def format_sync(folder: str) -> str:
    return f"wandb sync {shlex.quote(str(shorten_path(Path(folder))))}"


def rename_swept_groups(config: dict[str, Any]) -> dict[str, Any]:
    """Where W&B's sweep sets a group by the name of an option (model=vit_s16), write the group's values as model.depth
    and so on: W&B keeps the option under the group's own name."""
    path = os.environ.get("WANDB_SWEEP_PARAM_PATH")
    swept = yaml.safe_load(Path(path).read_text(encoding="utf-8")) if path and Path(path).is_file() else {}
    renamed: dict[str, Any] = {}
    for key, value in config.items():
        is_swept = key in swept and isinstance(value, dict)
        renamed |= {f"{key}.{name}": inner for name, inner in value.items()} if is_swept else {key: value}
    return renamed


@contextmanager
def arguments_replaced(arguments: list[str]) -> Iterator[None]:
    """Put other words in sys.argv, which W&B keeps, secrets included."""
    own = sys.argv
    sys.argv = [own[0], *arguments]
    try:
        yield
    finally:
        sys.argv = own


def start(arguments: dict[str, Any], upload_seconds: float) -> Any:
    """Start a W&B run, online if that works within ANSWER_SECONDS, else offline with one warning. Its end waits for so
    many seconds at most."""
    folder = Path(arguments["dir"]) / "wandb"
    folder.mkdir(parents=True, exist_ok=True)
    for key in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR"):
        os.environ[key] = str(folder / key.split("_")[1].lower())
    import wandb

    settings = wandb.Settings(init_timeout=ANSWER_SECONDS, login_timeout=ANSWER_SECONDS, silent=True)
    settings.finish_timeout, settings.finish_timeout_raises = upload_seconds, True
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
