"""A finished run, rebuilt from what it saved."""

import shutil
from pathlib import Path

import pytest
import torch

from vitlab.checkpoints import file
from vitlab.checkpoints.run_identity import RunIdentity
from vitlab.data import ImageDataModule
from vitlab.errors import CheckpointError
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.provenance import record_config
from vitlab.vocabulary import CharacterVocabulary

FROZEN = Path(__file__).parents[2] / "earlier_version" / "run"


@pytest.fixture(scope="module")
def saved():
    return SavedRun.open(str(FROZEN))


def test_the_best_model_is_opened_unless_a_file_is_named(saved):
    assert (saved.path, saved.folder) == (FROZEN / "checkpoints" / "best.ckpt", FROZEN)
    latest = SavedRun.open(str(FROZEN / "checkpoints" / "latest.ckpt"))
    assert (latest.path.name, latest.folder) == ("latest.ckpt", FROZEN)


def test_a_folder_is_absolute_wherever_it_was_named_from(monkeypatch):
    monkeypatch.chdir(FROZEN.parent)
    opened = SavedRun.open("run")
    assert (opened.path, opened.folder) == (Path("run/checkpoints/best.ckpt"), FROZEN)


def test_changes_are_merged_over_the_config_of_the_run(saved):
    changed = SavedRun.open(str(FROZEN), {"data": {"device_batch_size": 7}, "name": "${oc.env:HOME}"})
    assert changed.config.data.device_batch_size == 7
    assert changed.config.name == "${oc.env:HOME}"  # a text, not a reference
    assert changed.config.model == saved.config.model
    assert saved.change_config({"seed": 5}).config.seed == 5
    assert saved.config.seed != 5


def test_the_task_has_the_weights_that_were_saved(saved):
    kept = file.read(saved.path)["state_dict"]
    found = saved.task().state_dict()
    assert kept.keys() == found.keys()
    assert all(torch.equal(kept[name], value) for name, value in found.items())


def test_weights_of_another_model_are_refused(saved):
    with pytest.raises(CheckpointError, match="belongs to another model"):
        saved.change_config({"model": {"depth": saved.config.model.depth + 1}}).task()


def test_the_data_are_built_and_nothing_is_opened(saved):
    datamodule = saved.datamodule()
    assert isinstance(datamodule, ImageDataModule)
    assert datamodule.splits == {}


def test_a_run_has_the_vocabularies_that_it_kept(saved):
    assert (saved.vocabulary, saved.input_vocabulary) == (None, None)
    known = {"vocabulary": CharacterVocabulary("ab").state(), "input_vocabulary": CharacterVocabulary("c").state()}
    other = SavedRun(saved.path, saved.folder, {"run": known}, saved.config)
    assert (other.vocabulary, other.input_vocabulary) == (CharacterVocabulary("ab"), CharacterVocabulary("c"))


def test_a_config_that_was_edited_is_told_and_not_read(saved, tmp_path):
    shutil.copytree(FROZEN, tmp_path / "run")
    record_config(tmp_path / "run", RunIdentity(**saved.checkpoint["run"]["identity"]), b"seed: 9")
    assert SavedRun.open(str(tmp_path / "run")).config == saved.config
    (tmp_path / "run" / "config.yaml").write_bytes(b"seed: 8")
    with pytest.warns(UserWarning, match=r"config\.yaml was changed after the run wrote it; the change has no effect"):
        assert SavedRun.open(str(tmp_path / "run")).config == saved.config
