"""Log to MLflow: a server that is named, or a database in the run's folder, for mlflow ui --backend-store-uri."""

import logging
import os
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import MLFlowLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.errors import ConfigError
from vitlab.loggers.run_logger import RunLogger

PACKAGES = ("mlflow", "sqlalchemy", "alembic")
RUN = "vitlab.run"  # the tag by which a run is found again
PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}  # by default: minutes


class MLflow(RunLogger):
    """Lightning's MLFlowLogger around a run that this file starts and ends.

    `tracking_uri` null is MLFLOW_TRACKING_URI, and without that mlflow/mlflow.db in `folder`. A sweep's jobs share the
    tag `group`. A resumed run continues the one that has its `run_id` as a tag. Raises ConfigError where the package
    is not installed.
    """

    service = "MLflow"

    def __init__(
        self,
        *,
        experiment: str,
        tracking_uri: str | None,
        tags: dict[str, str],
        folder: str,
        name: str,
        group: str | None,
        run_id: str,
        run_config: dict[str, Any],
    ):
        super().__init__()
        if missing := [package for package in PACKAGES if find_spec(package) is None]:
            raise ConfigError(f"logger=mlflow needs {', '.join(missing)}: pip install 'vitlab[mlflow]'")
        self.experiment, self.title, self.run_id, self.run_config = experiment, name, run_id, run_config
        self.own = Path(folder) / "mlflow"
        self.uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        self.tags = {str(key): str(value) for key, value in tags.items()} | ({"group": group} if group else {})
        self.logger: MLFlowLogger | None = None

    @property
    def name(self) -> str:
        return self.experiment

    @property
    def version(self) -> str:
        return self.run_id

    def get_logger(self) -> MLFlowLogger:
        """Give Lightning's logger of the run, which is made or found again at the first record."""
        if self.logger is None:
            self.logger = start(self)
        return self.logger

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The run's config is logged when it starts."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.guard(lambda: self.get_logger().log_metrics(metrics, step))

    @rank_zero_only
    def log_image(self, key: str, images: list[str], step: int | None = None) -> None:
        """Log pictures, given by their files, as the run's artifacts."""
        for path in images:
            self.guard(self._log_picture, path)

    def _log_picture(self, path: str) -> None:
        logger = self.get_logger()
        logger.experiment.log_artifact(logger.run_id, path, "pictures")

    @rank_zero_only
    def close(self, exit_code: int) -> None:
        """Say how the run ended."""
        if self.logger is not None:
            self.guard(self.logger.finalize, "failed" if exit_code else "success")
            self.logger = None


def start(run: MLflow) -> MLFlowLogger:
    """Make a run of MLflow, with its config as parameters, or find the one that has the run's id."""
    for key, value in PATIENCE.items():
        os.environ.setdefault(key, value)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of MLflow's own libraries
        from mlflow import MlflowClient

        uri, artifacts = run.uri, None
        if uri is None:
            run.own.mkdir(exist_ok=True)
            uri, artifacts = f"sqlite:///{run.own / 'mlflow.db'}", f"file:{run.own / 'artifacts'}"
        client = MlflowClient(uri)
        known = client.get_experiment_by_name(run.experiment)
        place = known.experiment_id if known else client.create_experiment(run.experiment, artifacts)
        found = client.search_runs([place], f"tags.`{RUN}` = '{run.run_id}'")
        own = found[0] if found else client.create_run(place, tags={RUN: run.run_id, **run.tags}, run_name=run.title)
        logger = MLFlowLogger(run.experiment, tracking_uri=uri, run_id=own.info.run_id)
        if found:
            client.update_run(own.info.run_id, status="RUNNING")
        else:
            logger.log_hyperparams(run.run_config)
    return logger
