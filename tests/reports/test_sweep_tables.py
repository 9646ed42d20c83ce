"""What is told of a sweep when it has ended: what varies by short names, and whole scores at 80 columns."""

import pytest

from vitlab.reports.sweep import print_tables, shorten_keys, write_table


def test_names_are_as_short_as_they_can_be():
    keys = ["optimizer.lr", "seed", "model.drop_rate", "teacher.drop_rate", "val/acc1"]
    assert list(shorten_keys(keys).values()) == ["lr", "seed", "model.drop_rate", "teacher.drop_rate", "val/acc1"]


@pytest.fixture
def told(tmp_path, capsys, monkeypatch):
    """The lines of a sweep over four keys, of which one job failed, in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    given = [
        {"optimizer.lr": "0.00123456789", "model": "vit_s16_with_a_very_long_name", "data": "digits", "seed": str(seed)}
        | {"task.class_weights": weights}
        for seed in (0, 1)
        for weights in ("null", "balanced")
    ]
    outcomes = [
        {"folder": f"job{n}", "status": "done", "monitor": "val/acc1", "score": 0.91234 + n / 100, "seconds": 1234.5}
        | {"overrides": one}
        for n, one in enumerate(given)
    ]
    outcomes[0] |= {"status": "failed: ConfigError: what went wrong, in a sentence of some length", "score": None}
    rows = write_table(tmp_path, outcomes)
    seeds = [
        {"optimizer.lr": "0.001", "model": name, "metric": metric, "runs": 2, "mean": 0.5, "±": 0.0123, "values": "0 1"}
        for name in ("vit_s16", "vit_b16")
        for metric in ("test/loss", "test/acc1")
    ]
    print_tables(tmp_path, rows, seeds)
    return capsys.readouterr().out


def test_scores_are_whole_and_what_varies_is_there(told):
    cells = [[cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]] for line in told.splitlines()]
    heads = [row for row in cells if row and row[0] in ("val/acc1", "model")]
    assert heads[0] == ["val/acc1", "seed", "class_weights", "seconds", "status"]
    assert heads[1] == ["model", "metric", "runs", "mean", "±"]
    assert ["94.23%", "1", "balanced", "1234", "done"] in cells
    assert ["vit_b16", "test/acc1", "2", "50.00%", "1.23%"] in cells
    assert "…" not in told
    assert all(len(line) <= 80 for line in told.splitlines() if line[:1] in "│┃┏┡└")
