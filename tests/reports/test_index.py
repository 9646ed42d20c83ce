"""Runs are found again without reading them, and whatever changes in their files is noticed."""

import json
import os
import time

import pytest
import yaml

from vitlab.errors import CheckpointError
from vitlab.reports import index
from vitlab.reports.index import database, index_runs


def write_run(root, name, depth=1, acc1=None, **settings):
    folder = root / name
    folder.mkdir(parents=True)
    config = {"name": "a", "seed": 0, "monitor": "val/acc1", "model": {"depth": depth}, **settings}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "provenance.json").write_text("[]")
    if acc1 is not None:
        result = {"score": acc1, "steps": 3, "seconds": 1.0, "test": {"test/acc1": acc1, "test/loss": None}}
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_settings_and_results_are_read_once_and_changes_are_noticed(tmp_path, monkeypatch):
    write_run(tmp_path, "a/1", depth=2, acc1=0.5)
    write_run(tmp_path, "sweep/0")
    first = {run.folder.name: run for run in index_runs(tmp_path)}
    assert first["1"].ended
    assert not first["0"].ended
    assert first["1"].values["model.depth"] == 2
    assert first["1"].values["test/acc1"] == first["1"].values["score"] == 0.5
    assert "test/loss" not in first["1"].values  # it was NaN
    with monkeypatch.context() as patch:
        patch.setattr(index, "read_values", lambda folder: pytest.fail("read again"))
        assert {run.folder.name: run for run in index_runs(tmp_path)} == first
    (tmp_path / "a" / "1" / "result.json").unlink()
    write_run(tmp_path, "b/2", acc1=0.25)
    assert {run.folder.name: run.values.get("score") for run in index_runs(tmp_path)} == {
        "1": None,
        "0": None,
        "2": 0.25,
    }


def test_damaged_files_and_a_damaged_database_hide_no_run(tmp_path):
    folder = write_run(tmp_path, "a/1", acc1=0.5)
    write_run(tmp_path, "a/2", acc1=0.5)
    (folder / "config.yaml").write_text("{")
    (tmp_path / "a" / "2" / "result.json").write_text("[]")
    assert len(index_runs(tmp_path)) == 2
    database(tmp_path).write_bytes(b"no database" * 1000)
    assert len(index_runs(tmp_path)) == 2
    assert len(index_runs(tmp_path)) == 2
    with pytest.raises(CheckpointError, match="there is no folder"):
        index_runs(tmp_path / "nowhere")


@pytest.mark.slow
def test_ten_thousand_runs_take_a_second_or_two(tmp_path):
    config = yaml.safe_dump({"monitor": "val/acc1", "model": {f"key{k}": k for k in range(150)}})
    for number in range(10_000):
        folder = tmp_path / f"name{number % 100}" / str(number)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(config)
        (folder / "provenance.json").touch()
    assert len(index_runs(tmp_path)) == 10_000
    before = time.process_time()
    assert len(index_runs(tmp_path)) == 10_000
    assert time.process_time() - before < 5
    assert os.path.getsize(database(tmp_path)) < 100_000_000
