"""Draw what a sweep tells about its parameters: which of them matter, and which values go with good scores."""

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.atomic_files import writing_whole
from vitlab.errors import ConfigError
from vitlab.monitors import better

LEAST = 4  # jobs, of which something can be said
MAGNITUDES = 100.0  # between the least and the greatest of positive numbers, which lie on a logarithmic scale then


def draw(folder: Path, outcomes: list[dict[str, Any]]) -> list[Path]:
    """Write importance.png (the share of the score's variance that each parameter explains; Hutter et al., 2014) and
    parallel.png (a line for each job through its values to its score) into a sweep's folder, from what its jobs came
    to. Returns their paths. Raises ConfigError without optuna, or with too few jobs, or where nothing varies."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ConfigError("pictures of a sweep need the package optuna: pip install optuna") from error
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as plots

    done = [one for one in outcomes if one["status"] == "done" and one["score"] is not None]
    axes = varying([one["overrides"] for one in done])
    if len(done) < LEAST or not axes:
        raise ConfigError(f"{folder}: pictures need {LEAST} jobs that are done, and differ; there are {len(done)}")
    monitor = str(done[0]["monitor"])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if better(monitor) == "min" else "maximize")
    distributions = {name: distribution(values) for name, values in axes.items()}
    for one in done:
        params = {name: number(one["overrides"][name], distributions[name]) for name in axes}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=float(one["score"]))
        )
    written = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, plot in (("importance", plots.plot_param_importances), ("parallel", plots.plot_parallel_coordinate)):
            axis: Any = plot(study, target_name=monitor)
            with writing_whole(path := folder / f"{name}.png") as temporary:
                axis.figure.savefig(temporary, format="png", bbox_inches="tight")
            pyplot.close(axis.figure)
            written.append(path)
    return written


def varying(overrides: list[dict[str, str]]) -> dict[str, list[str]]:
    """Give the keys that all jobs set, but not all alike, and their values."""
    names = [name for name in overrides[0] if all(name in one for one in overrides)] if overrides else []
    values = {name: [one[name] for one in overrides] for name in names}
    return {name: found for name, found in values.items() if len(set(found)) > 1}


def distribution(values: list[str]) -> Any:
    """Describe an axis to optuna: numbers lie on a scale, all else is a choice."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    with suppress(ValueError):
        numbers = [float(value) for value in values]
        low, high = min(numbers), max(numbers)
        return FloatDistribution(low, high, log=low > 0 and high / low >= MAGNITUDES)
    return CategoricalDistribution(sorted(set(values)))


def number(value: str, distribution: Any) -> Any:
    return float(value) if hasattr(distribution, "log") else value
