import json
import os
import threading
import time
from concurrent.futures import wait
from types import SimpleNamespace

import pytest
import torch
from conftest import FEW
from torch import nn

from vitlab.callbacks import BestModel, LatestState
from vitlab.checkpoints import file, writer
from vitlab.checkpoints.snapshot import Snapshot
from vitlab.errors import StorageError


class Run:
    """A trainer whose model says the step, and whose state says the step of the best one; each validation is better
    than those before, and each state is saved after one."""

    def __init__(self, folder, every_n_steps=1):
        self.folder = folder / "checkpoints"
        self.folder.mkdir()
        self.default_root_dir, self.lightning_module = str(folder), nn.Linear(1, 1)
        self.lightning_module.record, self.lightning_module.num_steps = {"config": {}}, 10
        self.global_step, self.world_size, self.accumulate_grad_batches, self.current_epoch = 0, 1, 1, 0
        self.is_global_zero, self.fast_dev_run, self.sanity_checking = True, False, False
        self.strategy = SimpleNamespace(broadcast=lambda value: value)
        self.best = BestModel(monitor="val/acc1", mode="max")
        kept = {
            "every_n_steps": every_n_steps,
            "keep_every_n_steps": None,
            "keep_states": 0,
            "every_n_minutes": None,
            "copy_to": None,
        }
        self.latest = LatestState(**kept)
        self.callbacks = self.checkpoint_callbacks = [self.latest]
        self.after_step = lambda: None

    def save_checkpoint(self, path, weights_only, storage_options):
        state = self.lightning_module.state_dict()
        storage_options({"state_dict": state, "best": self.best.step}, path)

    def steps(self, count):
        module = self.lightning_module
        self.latest.on_train_start(self, module)
        for self.global_step in range(1, count + 1):
            nn.init.constant_(module.weight, self.global_step)
            self.callback_metrics = {"val/acc1": self.global_step}
            self.best.on_validation_end(self, module)
            self.latest.on_train_batch_start(self, module, None, self.global_step)
            self.after_step()
        self.latest.on_train_end(self, module)

    def read(self, name):
        return torch.load(self.folder / f"{name}.ckpt")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "LARGE", 0)
    return Run(tmp_path)


def slowly(monkeypatch, act=lambda state: None):
    """A disk that takes a fifth of a second for a best model, which `act` sees first."""
    save = torch.save

    def slow(state, place):
        if "score" in state:
            act(state)
            time.sleep(0.2)
        save(state, place)

    monkeypatch.setattr(torch, "save", slow)


def test_training_goes_on_while_the_best_model_is_written_as_it_was(run, monkeypatch):
    written, there = [], []
    slowly(monkeypatch, lambda state: written.append(state["global_step"]))

    def step():
        nn.init.zeros_(run.lightning_module.weight)
        there.append((run.folder / "best.ckpt").exists())

    run.after_step, run.latest.every_n_steps = step, 10
    run.steps(1)
    assert (written, there) == ([1], [False])
    assert run.read("best")["state_dict"]["weight"].item() == run.read("best")["global_step"] == 1


def test_the_best_model_is_not_written_before_the_state_of_its_step_is_copied(run, monkeypatch):
    """Also where the state before is still being written."""
    seen, save, copy_state = [], torch.save, Snapshot.copy_state

    def kind(state):
        return ("best", state["global_step"]) if "score" in state else ("latest", state["best"])

    def slow_save(state, place):
        seen.append(("written", *kind(state)))
        time.sleep(0.3 if kind(state)[0] == "latest" else 0)
        save(state, place)

    def slow_copy(snapshot, state):
        time.sleep(0.1)
        copy = copy_state(snapshot, state)
        seen.append(("copied", *kind(state)))
        return copy

    monkeypatch.setattr(torch, "save", slow_save)
    monkeypatch.setattr(Snapshot, "copy_state", slow_copy)
    run.steps(2)
    for step in (1, 2):
        assert seen.index(("copied", "latest", step)) < seen.index(("written", "best", step))


def test_a_state_is_on_the_disk_after_the_best_model_that_it_names(run, monkeypatch):
    """And a kill between the two leaves a state that names the best one before."""

    def killed(state):
        if state["global_step"] == 3:
            time.sleep(0.5)  # enough to write a state
            os._exit(9)

    slowly(monkeypatch, killed)
    pid = os.fork()
    if not pid:
        run.steps(5)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert run.read("latest")["best"] == run.read("best")["global_step"] == 2


def test_what_cannot_be_written_ends_the_run_before_its_next_step_and_no_state_names_it(run, monkeypatch):
    stepped = threading.Event()

    def full(state):
        if state["global_step"] == 3:
            stepped.wait()
            raise OSError("No space left on device")

    def step():
        if run.global_step == 3:
            stepped.set()
        wait(run.latest.background.begun)

    slowly(monkeypatch, full)
    run.after_step = step
    with pytest.raises(StorageError, match=r"best\.ckpt: No space left"):
        run.steps(5)
    assert run.global_step == 4
    assert run.read("latest")["best"] == run.read("best")["global_step"] == 2
    assert {path.name for path in run.folder.iterdir()} == {"best.ckpt", "latest.ckpt", "previous.ckpt"}


def test_the_end_of_training_and_of_an_interrupted_one_waits(run, monkeypatch):
    slowly(monkeypatch)
    run.latest.every_n_steps = 10
    run.steps(3)
    assert run.read("best")["global_step"] == 3
    run.global_step, run.callback_metrics = 4, {"val/acc1": 4}
    run.best.on_validation_end(run, run.lightning_module)
    run.latest.on_exception(run, run.lightning_module, SystemExit(143))
    assert run.read("best")["global_step"] == 4


def test_who_reads_the_best_model_waits_until_it_is_written(run, monkeypatch):
    """Also one of a validation after training."""
    slowly(monkeypatch)
    monkeypatch.setattr(file, "read", lambda path: torch.load(path))
    run.steps(2)
    run.global_step, run.callback_metrics = 3, {"val/acc1": 3}
    nn.init.constant_(run.lightning_module.weight, 3)
    run.best.on_validation_end(run, run.lightning_module)
    assert run.best.read_weights(run)["weight"].item() == 3


def test_a_small_one_is_written_at_once(tmp_path, monkeypatch):
    run, there = Run(tmp_path), []
    slowly(monkeypatch)
    run.after_step = lambda: there.append(run.read("best")["global_step"])
    run.steps(2)
    assert there == [1, 2]


@pytest.mark.slow
def test_a_run_that_writes_all_while_training_goes_on_keeps_and_tests_the_same_model(cli, monkeypatch):
    words = [*FEW, "trainer.max_epochs=3", "+trainer.val_check_interval=2", "callbacks=[default,ema]"]
    found = []
    for name, large in (("at_once", 2**26), ("meanwhile", 0)):
        monkeypatch.setattr(writer, "LARGE", large)
        folder = cli("train", *words, folder=name).folder
        tested = json.loads((folder / "result.json").read_text())["test"]
        found.append((file.read(folder / "checkpoints" / "best.ckpt"), tested))
    (at_once, tested), (meanwhile, tested_meanwhile) = found
    assert tested_meanwhile == tested
    assert (meanwhile["global_step"], meanwhile["score"]) == (at_once["global_step"], at_once["score"])
    assert all(torch.equal(value, meanwhile["state_dict"][name]) for name, value in at_once["state_dict"].items())
