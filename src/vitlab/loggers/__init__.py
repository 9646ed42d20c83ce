"""Where metrics go: a CSV in the run's folder always, Weights & Biases beside it."""

from vitlab.loggers.metrics_csv import MetricsCSV
from vitlab.loggers.weights_and_biases import WeightsAndBiases

__all__ = ["MetricsCSV", "WeightsAndBiases"]
