"""Choose the classes that a finished run predicts: its own, or any names if it compares images with texts."""

from collections.abc import Sequence
from typing import Any

import torch

from vitlab.errors import ConfigError
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks import Contrastive


def choose_names(saved: SavedRun, labels: Sequence[Any] | None) -> list[str]:
    """Return the `labels` if there are any, else the run's classes. Raises ConfigError for labels of a run that
    compares no images with texts, for fewer than two, and for one that is empty or given twice."""
    learned, compares = list(saved.checkpoint["run"]["class_names"]), "templates" in saved.config.task
    if labels is None:
        if compares and not learned:
            raise ConfigError(f"{saved.path} learned from texts and has no class names; set labels=[cat,dog]")
        return learned
    if not compares:
        raise ConfigError(
            f"{saved.path} does not compare images with texts, so it takes no labels=; give a run of task=contrastive"
        )
    names = [label.strip() for label in ([labels] if isinstance(labels, str) else map(str, labels))]
    if len(names) < 2:
        raise ConfigError(f"labels={names}: give at least two; set labels=[cat,dog]")
    if not all(names):
        raise ConfigError(f"labels={names}: one of them is empty; set labels=[cat,dog]")
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ConfigError(f"labels={names}: '{twice[0]}' is given twice; give each once")
    return names


def classifier(task: Any, names: Sequence[str]) -> Any:
    """Let a task tell names apart: as it has learned, or, where it compares images with texts, by theirs. Raises
    ConfigError for a name of which the model reads nothing, and for two that it reads as the same."""
    if not isinstance(task, Contrastive):
        return task
    read: dict[tuple[int, ...], str] = {tuple(task.vocabulary.encode("")): ""}
    for name in names:
        if (other := read.setdefault(tuple(task.vocabulary.encode(name)), name)) is not name:
            told = f"'{name}' as it reads '{other}'" if other else f"nothing of '{name}'"
            raise ConfigError(f"labels={list(names)}: the model reads {told}; give another name")
    with torch.no_grad():
        return task.zero_shot(names)
