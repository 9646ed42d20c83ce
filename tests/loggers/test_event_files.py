"""TensorBoard's event files say what metrics.csv says, after a resume too."""

import csv
import importlib

import pytest
from conftest import BARE, FEW

from vitlab.loggers import TensorBoard, event_files

READER = "tensorboard.backend.event_processing.event_accumulator"


def events(folder):
    return importlib.import_module(READER).EventAccumulator(str(folder)).Reload()


def rows(folder, name):
    with open(folder / "metrics.csv", newline="") as file:
        return [(int(row["step"]), float(row[name])) for row in csv.DictReader(file) if row[name]]


@pytest.mark.ci
@pytest.mark.slow
def test_the_events_are_the_metrics_with_pictures_and_config_and_a_resumed_run_goes_on_with_them(cli):
    few = [BARE[0], BARE[2], *FEW, "trainer.log_every_n_steps=1", "trainer.max_epochs=1"]
    run = cli("train", *few, "logger=tensorboard", folder="logged", pictures=True)
    assert run.status == 0, run.err
    found = events(run.folder / "tensorboard")
    for name in ("train/loss", "train/lr", "val/acc1", "test/acc1"):
        said = [(event.step, pytest.approx(event.value)) for event in found.Scalars(name)]
        assert rows(run.folder, name) == said, name
    assert found.Tags()["images"] == ["training_batch"]
    assert b"vit_mu4" in found.Tensors("config/text_summary")[0].tensor_proto.string_val[0]
    resumed = cli("train", "resume=logged", "trainer.max_epochs=2", tiny=False)
    assert resumed.status == 0, resumed.err
    found = events(run.folder / "tensorboard").Scalars("train/loss")
    assert rows(run.folder, "train/loss") == [(event.step, pytest.approx(event.value)) for event in found]
    assert len(found) == 8


def test_steps_after_the_one_that_is_gone_on_from_no_longer_count(tmp_path):
    for first_step, steps in ((0, [1, 2, 3, 4]), (2, [3])):
        logger = TensorBoard(folder=str(tmp_path), first_step=first_step, run_config={"lr": 0.5})
        for step in steps:
            logger.log_metrics({"loss": step + first_step}, step)
        logger.finalize("success")
    found = events(tmp_path / "tensorboard").Scalars("loss")
    assert [(event.step, event.value) for event in found] == [(1, 1), (2, 2), (3, 5)]


def test_without_the_package_one_sentence_names_the_extra(cli, monkeypatch):
    monkeypatch.setattr(event_files, "find_spec", lambda package: None)
    run = cli("train", "logger=tensorboard", folder="run")
    assert run.status == 2
    assert "pip install 'vitlab[tensorboard]'" in run.err


@pytest.mark.slow
def test_several_at_once(cli):
    run = cli("train", "logger=[wandb,tensorboard]", *FEW, "trainer.max_epochs=1", folder="run")
    assert run.status == 0, run.err
    assert "val/acc1" in events(run.folder / "tensorboard").Tags()["scalars"]
    assert len(list((run.folder / "wandb").glob("offline-run-*/*.wandb"))) == 1
    offline = next((run.folder / "wandb").glob("offline-run-*"))
    assert f"wandb sync run/wandb/{offline.name}" in run.out.splitlines()[-1]
