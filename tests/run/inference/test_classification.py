"""The names that a finished run chooses from."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from vitlab.errors import ConfigError
from vitlab.run.inference.classification import choose_names
from vitlab.run.inference.saved_run import SavedRun


def saved(class_names, *, compares=False):
    task = {"templates": ["{}"]} if compares else {"loss": None}
    return SavedRun(Path("run"), Path("run"), {"run": {"class_names": class_names}}, OmegaConf.create({"task": task}))


def test_without_labels_they_are_the_runs_classes():
    assert choose_names(saved(["cat", "dog"]), None) == ["cat", "dog"]


def test_a_run_of_images_and_texts_takes_any_two():
    assert choose_names(saved([], compares=True), [" cat", 7]) == ["cat", "7"]


@pytest.mark.parametrize(
    ("run", "labels", "sentence"),
    [
        (saved([], compares=True), None, "has no class names"),
        (saved(["cat", "dog"]), ["cat", "dog"], "takes no labels="),
        (saved([], compares=True), "cat", "at least two"),
        (saved([], compares=True), ["cat", " "], "one of them is empty"),
        (saved([], compares=True), ["cat", "cat"], "'cat' is given twice"),
    ],
)
def test_what_is_no_choice_is_refused(run, labels, sentence):
    with pytest.raises(ConfigError, match=sentence):
        choose_names(run, labels)
