"""Metrics by their names."""

import re

SHARE = re.compile(r"(.+_)?(acc\d+|map|f1|ece|precision|recall|exact|cer)(_.+)?")


def better(monitor: str) -> str:
    """Which way a metric is better: losses and errors fall ("min"), all else rises ("max")."""
    return "min" if monitor.rsplit("/", 1)[-1] in ("loss", "ece", "cer") else "max"


def in_words(metric: str, value: float) -> str:
    """A value as a person reads it: a share of the samples as percent, all else as a number."""
    return f"{value:.2%}" if SHARE.fullmatch(metric.rsplit("/", 1)[-1]) else f"{value:.4f}"
