"""Draw what a sweep tells about its parameters: which of them matter, and which values go with good scores."""

import warnings
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from vitlab.atomic_files import writing_whole
from vitlab.errors import ConfigError
from vitlab.monitors import better
from vitlab.reports.parallel import parallel
from vitlab.reports.sweep import short_names

LEAST = 4  # jobs, of which something can be said
MAGNITUDES = 100.0  # between the least and the greatest of positive numbers, which lie on a logarithmic scale then


def draw(folder: Path, outcomes: list[dict[str, Any]], scales: dict[str, bool]) -> list[Path]:
    """Write importance.png (the share of the score's variance that each parameter explains; Hutter et al., 2014) and
    parallel.png (a line for each job through its values to its score) into a sweep's folder, from what its jobs came
    to. `scales` tells of keys whether they were searched on a logarithmic scale; of others, their values tell. Returns
    their paths. Raises ConfigError without optuna, or with too few jobs, or where nothing varies."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ConfigError("pictures of a sweep need the package optuna: pip install optuna") from error
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization.matplotlib import plot_param_importances

    done = [one for one in outcomes if one["status"] == "done" and one["score"] is not None and isfinite(one["score"])]
    axes = varying([one["overrides"] for one in done])
    if len(done) < LEAST or not axes:
        raise ConfigError(f"{folder}: pictures need {LEAST} jobs that are done, and differ; there are {len(done)}")
    monitor = str(done[0]["monitor"])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if better(monitor) == "min" else "maximize")
    distributions = {name: distribution(values, scales.get(name)) for name, values in axes.items()}
    params = [{name: number(one["overrides"][name], distributions[name]) for name in axes} for one in done]
    scores = [float(one["score"]) for one in done]
    for place, score in zip(params, scores, strict=True):
        study.add_trial(optuna.trial.create_trial(params=place, distributions=distributions, value=score))
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore")
        importance: Any = plot_param_importances(study, target_name=monitor)
        pyplot.close(importance.figure)
    columns = {short: [place[name] for place in params] for name, short in short_names(axes).items()}
    log = {short: getattr(distributions[name], "log", False) for name, short in short_names(axes).items()}
    goodness = [-score if better(monitor) == "min" else score for score in scores]
    lines = parallel({**columns, monitor: scores}, log, goodness)
    written = {folder / "importance.png": importance.figure, folder / "parallel.png": lines}
    for path, figure in written.items():
        with writing_whole(path) as temporary:
            figure.savefig(temporary, format="png", bbox_inches="tight")
    return list(written)


def varying(overrides: list[dict[str, str]]) -> dict[str, list[str]]:
    """Give the keys that all jobs set, but not all alike, and their values."""
    names = [name for name in overrides[0] if all(name in one for one in overrides)] if overrides else []
    values = {name: [one[name] for one in overrides] for name in names}
    return {name: found for name, found in values.items() if len(set(found)) > 1}


def distribution(values: list[str], log: bool | None) -> Any:
    """Describe an axis to optuna: numbers lie on a scale, all else is a choice. `log` null: by their magnitudes."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    with suppress(ValueError):
        numbers = [float(value) for value in values]
        low, high = min(numbers), max(numbers)
        return FloatDistribution(low, high, log=(low > 0 and high / low >= MAGNITUDES) if log is None else log)
    return CategoricalDistribution(sorted(set(values)))


def number(value: str, distribution: Any) -> Any:
    return float(value) if hasattr(distribution, "log") else value
