"""Means over seeds: of jobs that differ in nothing else, with Student's interval."""

import csv
import json

import numpy as np
import pytest

from vitlab.reports.seeds import write_seed_table
from vitlab.run.printing.console import write_json


def outcome(sweep, folder, accuracy, status="done", **overrides):
    (sweep / folder).mkdir()
    if accuracy is not None:
        (sweep / folder / "result.json").write_text(
            json.dumps({"score": accuracy / 2, "test": {"test/acc1": accuracy, "test/loss": 1.0}})
        )
    return {"folder": folder, "status": status, "overrides": overrides, "monitor": "val/acc1"}


def test_jobs_that_differ_in_their_seed_alone_share_a_row(tmp_path):
    outcomes = [
        outcome(tmp_path, "a", 0.8, seed="0", lr="1"),
        outcome(tmp_path, "b", 0.9, seed="1", lr="1"),
        outcome(tmp_path, "c", 0.5, seed="0", lr="2"),
        outcome(tmp_path, "d", None, seed="1", lr="2", status="failed"),
    ]
    rows = write_seed_table(tmp_path, outcomes)
    found = {(row["lr"], row["metric"]): (row["runs"], row["mean"]) for row in rows}
    assert found[("1", "test/acc1")] == (2, pytest.approx(np.mean([0.8, 0.9])))
    assert found[("2", "test/acc1")] == (1, 0.5)
    assert found[("1", "val/acc1")] == (2, pytest.approx(np.mean([0.4, 0.45])))
    with open(tmp_path / "seeds.csv", newline="", encoding="utf-8") as file:
        assert [row["values"] for row in csv.DictReader(file)][:2] == ["0.4000 0.4500", "0.8000 0.9000"]


def test_what_was_not_known_of_a_run_is_no_number(tmp_path):
    outcomes = [outcome(tmp_path, name, 0.0, seed=name) for name in "ab"]
    for name in "ab":
        write_json(
            tmp_path / name / "result.json", {"score": None, "test": {"test/acc1": float("nan"), "test/loss": 1.0}}
        )
        assert "null" in (tmp_path / name / "result.json").read_text()
    rows = {row["metric"]: row["mean"] for row in write_seed_table(tmp_path, outcomes)}
    assert np.isnan(rows["test/acc1"])
    assert rows["test/loss"] == 1.0


def test_a_sweep_without_seeds_has_no_such_table(tmp_path):
    assert write_seed_table(tmp_path, [outcome(tmp_path, "a", 0.8, lr="1"), outcome(tmp_path, "b", 0.9, lr="2")]) == []
    assert not (tmp_path / "seeds.csv").exists()
