"""python src/tune.py, as a user runs it."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import FEW, refuses

from vitlab.errors import ConfigError
from vitlab.programs import tune

SMALL = ["model=vit_mu4", "trainer=cpu", "trainer.precision=32-true", "data.loading.num_workers=0", *FEW]
FEWER = [*SMALL[:-2], "data.split.labels_per_class=4", "global_batch_size=16", "find=batch_size", "seconds=0.01"]


@pytest.fixture
def fall(monkeypatch):
    """fall(losses): what tune finds where the steps of its test have these losses, or the error."""

    class Fit:
        def __init__(self, losses):
            self.losses = losses

        def fit(self, task, datamodule):
            self.test.losses = list(self.losses)

    def find(losses):
        trainer = Fit(losses)

        def bare_trainer(trainer_, callbacks, max_steps):
            trainer.test = callbacks[0]
            return trainer

        part = SimpleNamespace(attach=lambda trainer: None, plan=lambda *_: None)
        monkeypatch.setattr(tune, "bare_trainer", bare_trainer)
        monkeypatch.setattr(tune, "build_trainable", lambda *_: (part, part))
        monkeypatch.setattr(tune, "build_trainer", lambda *_, **__: None)
        start = SimpleNamespace(
            cfg=SimpleNamespace(global_batch_size=1, trainer=None, optimizer=SimpleNamespace(lr=1)), folder=None
        )
        return tune.find_lr(start, None, SimpleNamespace(steps=len(losses), lowest=1e-6, highest=1.0)).value

    return find


RATES = np.geomspace(1e-6, 1, 121)


@pytest.mark.parametrize("seed", range(6))
def test_a_third_of_the_rate_of_the_least_loss_is_found_whatever_the_first_steps_do(fall, seed):
    """The loss falls by noise among the first steps, as it did on the digits."""
    noise = np.random.default_rng(seed).normal(0, 0.2, 121) + np.where(np.arange(121) < 4, 2, 0)
    losses = 4 - np.tanh(3 * (np.log10(RATES) + 3)) + 5 * np.maximum(np.log10(RATES) + 2, 0) ** 2
    assert fall(losses + noise) == pytest.approx(0.01 / 3, rel=0.6)


def test_no_rate_is_found_where_the_loss_only_grows(fall):
    with pytest.raises(ConfigError, match="the loss does not fall from lowest"):
        fall(np.linspace(1, 9, 121))


def test_a_learning_rate_is_found_by_steps_at_each_rate_and_nothing_but_a_picture_is_kept(cli, tmp_path, monkeypatch):
    used, step = [], tune.RangeTest.on_train_batch_end

    def spy(self, trainer, *others):
        used.append([group["lr"] for group in trainer.optimizers[0].param_groups])  # of the next step
        step(self, trainer, *others)

    monkeypatch.setattr(tune.RangeTest, "on_train_batch_end", spy)
    run = cli("tune", *SMALL, "steps=20", "lowest=1e-4", "highest=1e-2", "optimizer.layer_decay=0.5", "output=out")
    assert run.status == 0, run.err
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lr.png"]
    found = float(run.out.rpartition("optimizer.lr=")[2])
    assert 1e-4 <= found <= 1e-2
    assert [max(rates) for rates in used[:-1]] == pytest.approx(np.geomspace(1e-4, 1e-2, 20)[1:].tolist())
    assert len({min(rates) / max(rates) for rates in used}) == 1
    assert min(used[0]) < max(used[0]) / 4  # the layers keep their ratios


def test_batches_are_measured_until_the_data_has_no_more(cli):
    run = cli("tune", *FEWER, "output=out")
    assert run.status == 0, run.err
    rows = [line.split("│")[1].strip() for line in run.out.splitlines() if "MiB" in line and "│" in line]
    assert rows == ["2", "4", "8", "16", "32"][: len(rows)]
    assert len(rows) >= 3  # a CPU is asked for no more after two that are no faster
    assert int(run.out.rpartition("data.device_batch_size=")[2]) in map(int, rows)


def test_two_batches_that_are_no_faster_are_past_the_fastest():
    assert not any(map(tune.is_past_fastest, ([], [5], [5, 4], [5, 4, 6], [1, 5, 4, 5.1])))
    assert all(map(tune.is_past_fastest, ([5, 4, 5], [1, 5, 4, 3])))


def test_batches_that_do_not_fit_are_not_tried(cli):
    run = cli("tune", *FEWER, "memory_gib=0.0025", "output=out")
    assert run.status == 0, run.err
    assert not re.search(r"^│ 32 ", run.out, re.MULTILINE)  # the column of batch sizes, not that of the speed
    assert refuses(cli("tune", *FEWER, "memory_gib=0.0001"), "not even a batch of 2 samples fits")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["find=both"], ["find", "lr", "batch_size"]),
        (["steps=3"], ["steps 3"]),
        (["lowest=1", "highest=0.1"], ["lowest=1 is not below highest=0.1"]),
        (["lowest=0"], ["lowest 0"]),
        (["output=there"], ["there"]),
        (["task=linear_probe"], ["task.lr_grid"]),
    ],
)
def test_what_cannot_be_found_is_refused_in_a_sentence(cli, tmp_path, words, told):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.txt").touch()
    run = cli("tune", *SMALL, *words)
    assert all(refuses(run, words) for words in told), run.err
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_resumed(cli, short_run):
    assert refuses(cli("tune", f"resume={short_run}"), "tune prepares a new training; leave out resume=")
