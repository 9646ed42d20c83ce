"""Where metrics go: a CSV in the run's folder always, and beside it what logger= names."""

from vitlab.loggers.event_files import TensorBoard
from vitlab.loggers.metrics_csv import MetricsCSV
from vitlab.loggers.mlflow_runs import MLflow
from vitlab.loggers.run_logger import RunLogger
from vitlab.loggers.weights_and_biases import WeightsAndBiases

__all__ = ["MLflow", "MetricsCSV", "RunLogger", "TensorBoard", "WeightsAndBiases"]
