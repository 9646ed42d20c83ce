"""Metrics by their names."""


def better(monitor: str) -> str:
    """Which way a metric is better: losses and errors fall ("min"), all else rises ("max")."""
    return "min" if monitor.rsplit("/", 1)[-1] in ("loss", "ece") else "max"
