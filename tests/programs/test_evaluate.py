"""python src/evaluate.py, as a user runs it."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from conftest import FEW, evaluated

from vitlab.checkpoints import file


def test_evaluation_gives_the_numbers_of_the_runs_own_test(cli, digits_run):
    result = json.loads((digits_run / "result.json").read_text())["test"]
    assert cli("evaluate", f"run={digits_run}").status == 0
    evaluation = evaluated(digits_run)
    assert {name: evaluation[name] for name in result} == result


def test_evaluation_scores_any_split(cli, digits_run):
    best = file.read(digits_run / "checkpoints" / "best.ckpt")
    assert cli("evaluate", f"run={digits_run / 'checkpoints' / 'best.ckpt'}", "split=val").status == 0
    evaluation = evaluated(digits_run, "val")
    assert abs(evaluation["val/acc1"] - best["score"]["val/acc1"]) < 1e-6
    assert cli("evaluate", f"run={digits_run}", "split=train").status == 0
    (written,) = digits_run.glob("evaluate/*/train_predictions.csv")
    with open(written, newline="") as f:
        assert len(list(csv.DictReader(f))) == 1258
    assert cli("evaluate", f"run={digits_run}", "split=tset").status == 2


@pytest.mark.ci
@pytest.mark.slow
def test_each_evaluation_writes_to_a_folder_of_its_own(cli, tmp_path):
    assert cli("train", "trainer.max_steps=2", *FEW, folder="run").status == 0
    own = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in own}
    others = (
        (["run=run"], "run/evaluate/*"),
        (["run=run/checkpoints/latest.ckpt"], "run/evaluate/*"),
        (["run=run", "+data.std=[0.5]"], "run/evaluate/*"),
        (["run=run", "+trainer.limit_test_batches=1"], "run/evaluate/*"),
        (["run=run", "output=elsewhere"], "elsewhere"),
    )
    written = set()
    for options, place in others:
        done = cli("evaluate", *options)
        assert done.status == 0, done.err
        (new,) = set(tmp_path.glob(f"{place}/evaluation_test.json")) - written
        assert (new.parent / "test_predictions.csv").is_file()
        written.add(new)
    assert {path: path.read_bytes() for path in own} == before


def test_an_evaluation_takes_as_many_images_at_once_as_it_is_told_or_as_fit(cli, digits_run, monkeypatch):
    from vitlab.data import ImageDataModule

    sizes = []
    loader = ImageDataModule.test_dataloader

    def watched(self):
        sizes.append(self.device_batch_size)
        return loader(self)

    monkeypatch.setattr(ImageDataModule, "test_dataloader", watched)
    assert cli("evaluate", f"run={digits_run}", "output=a").status == 0
    assert cli("evaluate", f"run={digits_run}", "output=b", "+data.device_batch_size=16").status == 0
    assert sizes == [64, 16]


def test_an_evaluation_builds_no_cache(cli, tmp_path):
    options = ["trainer.max_steps=1", "data.cache.kind=decoded", "data.cache.root=cache"]
    assert cli("train", *options, folder="run").status == 0
    shutil.rmtree("cache")
    assert cli("evaluate", "run=run").status == 0
    assert not Path("cache").exists()
