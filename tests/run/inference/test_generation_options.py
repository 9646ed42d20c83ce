"""What a command changes of how a run writes texts, or compares images with texts."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from vitlab.errors import ConfigError
from vitlab.run.inference.generation_options import apply_generation_options, generation_changes
from vitlab.run.inference.saved_run import SavedRun

UNCHANGED = {"run": "run", "beam_width": None, "length_penalty": None, "templates": None}


def options(**changes):
    return OmegaConf.create(UNCHANGED | changes)


def test_what_is_null_changes_nothing():
    assert generation_changes(options()) == {}
    assert generation_changes(options(beam_width=4)) == {"task": {"decoding": {"width": 4}}}
    assert generation_changes(options(templates=["a {}"])) == {"task": {"templates": ["a {}"]}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"beam_width": 4}, "writes no texts"), ({"templates": ["a {}"]}, "does not compare images")],
)
def test_a_run_of_classes_takes_none(changes, sentence):
    saved = SavedRun(Path("run"), Path("run"), {}, OmegaConf.create({"task": {"loss": None}}))
    with pytest.raises(ConfigError, match=f"run=run {sentence}"):
        apply_generation_options(saved, options(**changes))
