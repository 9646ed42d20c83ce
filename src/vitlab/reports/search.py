"""Draw which keys of a sweep matter, and which of their values lead to good scores."""

import warnings
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_atomically
from vitlab.errors import ConfigError
from vitlab.monitors import better
from vitlab.reports.parallel import draw_parallel
from vitlab.reports.sweep import shorten_keys

MIN_JOBS = 4
LOG_RATIO = 100.0  # of the largest to the smallest of positive values, from which their axis is logarithmic


def draw_sweep(folder: Path, outcomes: list[dict[str, Any]], scales: dict[str, bool]) -> list[Path]:
    """Draw the outcomes of a sweep's jobs into its folder, and return the paths of two pictures.

    importance.png shows the share of the score's variance that each key explains (Hutter et al., 2014), parallel.png a
    line for each job through its values to its score. `scales` says which keys were searched on a logarithmic scale;
    for other keys their values decide. Raises ConfigError without optuna, with too few jobs, or if no key varies.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ConfigError("pictures of a sweep need the package optuna: pip install optuna") from error
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization.matplotlib import plot_param_importances

    done = [one for one in outcomes if one["status"] == "done" and one["score"] is not None and isfinite(one["score"])]
    axes = find_varying([one["overrides"] for one in done])
    if len(done) < MIN_JOBS or not axes:
        raise ConfigError(
            f"{folder}: pictures need at least {MIN_JOBS} finished jobs that differ, and there are {len(done)}"
        )
    monitor = str(done[0]["monitor"])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if better(monitor) == "min" else "maximize")
    distributions = {name: build_distribution(values, scales.get(name)) for name, values in axes.items()}
    params = [{name: parse_value(one["overrides"][name], distributions[name]) for name in axes} for one in done]
    scores = [float(one["score"]) for one in done]
    for place, score in zip(params, scores, strict=True):
        study.add_trial(optuna.trial.create_trial(params=place, distributions=distributions, value=score))
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore")
        importance: Any = plot_param_importances(study, target_name=monitor)
        pyplot.close(importance.figure)
    columns = {short: [place[name] for place in params] for name, short in shorten_keys(axes).items()}
    log = {short: getattr(distributions[name], "log", False) for name, short in shorten_keys(axes).items()}
    goodness = [-score if better(monitor) == "min" else score for score in scores]
    lines = draw_parallel({**columns, monitor: scores}, log, goodness)
    written = {folder / "importance.png": importance.figure, folder / "parallel.png": lines}
    for path, figure in written.items():
        with write_atomically(path) as temporary:
            figure.savefig(temporary, format="png", bbox_inches="tight")
    return list(written)


def find_varying(overrides: list[dict[str, str]]) -> dict[str, list[str]]:
    """Return the values of each key that all jobs set, if they differ."""
    names = [name for name in overrides[0] if all(name in one for one in overrides)] if overrides else []
    values = {name: [one[name] for one in overrides] for name in names}
    return {name: found for name, found in values.items() if len(set(found)) > 1}


def build_distribution(values: list[str], log: bool | None) -> Any:
    """Build an Optuna distribution: an interval for numbers, else a choice. `log` None: decided by LOG_RATIO."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    with suppress(ValueError):
        numbers = [float(value) for value in values]
        low, high = min(numbers), max(numbers)
        return FloatDistribution(low, high, log=(low > 0 and high / low >= LOG_RATIO) if log is None else log)
    return CategoricalDistribution(sorted(set(values)))


def parse_value(value: str, distribution: Any) -> Any:
    return float(value) if hasattr(distribution, "log") else value
