"""A run of version 0.1.0, frozen in tests/earlier_version, opens, evaluates, predicts and resumes as it did then.

Its files are never written anew. The run ended within an epoch, at step 50 (accumulation, mixup, drop path, an average
of the weights). What its test and its predictions said, and what ten more steps made of it, was recorded then, by one
thread of a CPU with AVX-512; processors differ by some 1e-6 of a loss.
"""

import csv
import json
import shutil
from pathlib import Path

import pytest
from conftest import evaluated
from PIL import Image

from vitlab.checkpoints import file
from vitlab.data import Digits

FROZEN = Path(__file__).parent / "earlier_version"
MEASURED = ("train/loss", "train/grad_norm", "train/acc1", "train/lr", "epoch", "val/loss", "val/acc1")


@pytest.fixture
def run(tmp_path):
    shutil.copytree(FROZEN / "run", tmp_path / "run")
    return tmp_path / "run"


def rows(path):
    with open(path, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_it_evaluates_to_the_same_figures(cli, run):
    done = cli("evaluate", "run=run")
    assert done.status == 0, done.err
    found, then = (evaluated(folder) for folder in (run, FROZEN))
    figures = {name: value for name, value in then.items() if name.startswith("test/")}
    assert {name: found[name] for name in figures} == pytest.approx(figures, abs=1e-5)


def test_it_predicts_the_same_classes(cli, run, tmp_path):
    (tmp_path / "img").mkdir()
    pool = Digits().open()["train"]
    for i in range(3):
        Image.fromarray(pool.load(i)).save(tmp_path / "img" / f"d{i}.png")
    done = cli("predict", "run=run", "images=img", "output=predictions.csv", "top_k=3")
    assert done.status == 0, done.err
    for now, then in zip(rows(tmp_path / "predictions.csv"), rows(FROZEN / "predictions.csv"), strict=True):
        for name, value in then.items():
            if name.startswith("probability"):
                assert float(now[name]) == pytest.approx(float(value), abs=1e-5)
            else:
                assert now[name] == value


def test_it_resumes_to_the_same_run(cli, run):
    done = cli("train", "resume=run", "trainer.max_steps=60", tiny=False)
    assert done.status == 0, done.err
    now, then = rows(run / "metrics.csv"), rows(FROZEN / "resumed_metrics.csv")
    assert [row["step"] for row in now] == [row["step"] for row in then]
    for a, b in zip(now, then, strict=True):
        for name in MEASURED:
            assert a[name] == b[name] == "" or float(a[name]) == pytest.approx(float(b[name]), abs=2e-5), (name, b)
    state = file.read(run / "checkpoints" / "latest.ckpt")
    recorded = json.loads((FROZEN / "resumed_weights.json").read_text())
    for key, saved in {"averaged": "state_dict", "trained": "current_model_state"}.items():
        for name, (total, squares) in recorded[key].items():
            weights = state[saved][name].double()
            assert float(weights.sum()) == pytest.approx(total, abs=2e-3), (key, name)
            assert float(weights.square().sum()) == pytest.approx(squares, rel=1e-3, abs=1e-5), (key, name)
