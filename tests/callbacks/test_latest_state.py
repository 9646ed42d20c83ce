import os
import time
from concurrent.futures import wait
from types import SimpleNamespace

import fsspec
import pytest
import torch
from torch import nn

from vitlab.callbacks import LatestState
from vitlab.checkpoints import writer as module
from vitlab.checkpoints.chain import read_chain
from vitlab.checkpoints.copies import Copies
from vitlab.errors import ConfigError, StorageError


@pytest.fixture(params=[2**26, 0], ids=["at_once", "while_training"])
def written(request, monkeypatch):
    """Small states at once, or all of them while training goes on."""
    monkeypatch.setattr(module, "LARGE", request.param)
    return request.param


def latest_state(**changes):
    options = {
        "every_n_steps": 500,
        "every_n_minutes": None,
        "keep_every_n_steps": None,
        "keep_states": 0,
        "copy_to": None,
    }
    return LatestState(**options | changes)


@pytest.mark.parametrize(
    ("validated", "num_steps", "saved"),
    [(1, 12, [2, 4, 6, 8, 10, 12]), (3, 12, [6, 12]), (4, 12, [8, 12]), (None, 12, [12])],
)
def test_saved_is_where_an_epoch_ends_in_a_validation_and_at_the_end(validated, num_steps, saved, tmp_path):
    """Epochs of two steps: those that bring no validation are not worth a file each."""
    found = []
    task = nn.Linear(1, 1)
    task.num_steps = num_steps
    trainer = SimpleNamespace(
        check_val_every_n_epoch=validated,
        enable_validation=True,
        should_stop=False,
        fast_dev_run=False,
        global_step=0,
        is_global_zero=False,
        lightning_module=task,
        default_root_dir=str(tmp_path),
        save_checkpoint=lambda path, weights_only, storage_options: found.append(trainer.global_step),
    )
    latest = latest_state(every_n_steps=500)
    latest.on_train_start(trainer, task)
    for epoch in range(num_steps // 2):
        trainer.current_epoch, trainer.global_step = epoch, 2 * epoch + 2
        latest.on_train_epoch_end(trainer, task)
    assert found == saved


class Run:
    """A trainer of steps whose state is a file that says the step."""

    def __init__(self, folder):
        self.folder = folder / "run" / "checkpoints"
        self.folder.mkdir(parents=True)
        self.default_root_dir, self.lightning_module = str(folder / "run"), nn.Linear(1, 1)
        self.lightning_module.num_steps, self.lightning_module.record = 12, {}
        self.global_step, self.world_size, self.accumulate_grad_batches = 0, 1, 1
        self.is_global_zero, self.fast_dev_run = True, False
        self.after_step = lambda latest: None

    def save_checkpoint(self, path, weights_only, storage_options):
        storage_options({"state_dict": {"step": torch.tensor(self.global_step)}}, path)

    def steps(self, latest, count):
        latest.on_train_start(self, self.lightning_module)
        for self.global_step in range(1, count + 1):
            latest.on_train_batch_start(self, self.lightning_module, None, self.global_step)
            self.after_step(latest)
        latest.on_train_end(self, self.lightning_module)

    def files(self):
        return {path.name: int(torch.load(path)["state_dict"]["step"]) for path in self.folder.iterdir()}


def waited_for(latest):
    """Slow steps: what was begun in one has ended before the next."""
    wait(latest.background.begun)


def test_milestones_stay_beside_the_newest_two(tmp_path, written):
    run = Run(tmp_path)
    run.steps(latest_state(every_n_steps=2, keep_every_n_steps=5), 12)
    assert run.files() == {"latest.ckpt": 12, "previous.ckpt": 10, "step_5.ckpt": 5, "step_10.ckpt": 10}


@pytest.mark.parametrize(("keep", "kept"), [(0, []), (2, [6, 12]), (3, [4, 8, 12]), ("auto", [2, 4, 6, 8, 10, 12])])
def test_kept_states_are_spread_over_the_run_and_each_has_a_line_in_the_chain(keep, kept, tmp_path, written):
    """Of the states that are saved anyway, each that is the first one behind a share of the run."""
    run = Run(tmp_path)
    run.steps(latest_state(every_n_steps=2, keep_states=keep), 13)
    assert run.files().keys() - {"latest.ckpt", "previous.ckpt"} == {f"step_{step}.ckpt" for step in kept}
    assert [line["step"] for line in read_chain(tmp_path / "run" / "chain.jsonl")[1:]] == [2, 4, 6, 8, 10, 12]


def test_states_that_take_much_room_are_kept_only_when_asked_for():
    assert [latest_state(keep_states="auto").count_states(size) for size in (10**6, 2 * 10**7, 10**8)] == [8, 2, 0]
    assert latest_state(keep_states=8).count_states(10**9) == 8


def test_by_the_clock_a_state_is_saved_some_minutes_after_the_one_before(tmp_path, monkeypatch):
    run, clock, saved = Run(tmp_path), iter(range(0, 10_000, 20)), []
    monkeypatch.setattr("vitlab.callbacks.latest_state.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(run, "save_checkpoint", lambda *args, **kwargs: saved.append(run.global_step))
    run.steps(latest_state(every_n_minutes=1), 10)  # each look at the clock takes 20 seconds
    assert saved == [3, 6, 9]


def test_each_newest_state_is_copied_to_an_address(tmp_path, written):
    run = Run(tmp_path)
    run.steps(latest_state(every_n_steps=3, copy_to="memory://bucket/runs/"), 10)
    files = fsspec.filesystem("memory")
    with files.open("/bucket/runs/run/latest.ckpt") as file:
        assert torch.load(file)["state_dict"]["step"] == 9
    assert [path.rpartition("/")[2] for path in files.ls("/bucket/runs/run", detail=False)] == ["latest.ckpt"]


def test_a_copy_that_fails_ends_the_run_before_its_next_step(tmp_path, written):
    (tmp_path / "file").touch()
    run, latest = Run(tmp_path), latest_state(every_n_steps=3, copy_to=f"file://{tmp_path}/file")
    run.after_step = waited_for
    with pytest.raises(StorageError, match="cannot be copied to file://"):
        run.steps(latest, 10)
    assert run.global_step == 4
    assert run.files() == {"latest.ckpt": 3}


def test_of_a_copy_that_finds_no_room_nothing_is_left(tmp_path, monkeypatch):
    (tmp_path / "state").write_bytes(b"state")

    def full(source, target, size):
        target.write(b"st")
        raise OSError("No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(StorageError, match="No space left"):
        Copies(str(tmp_path / "copies")).copy(tmp_path / "state", "run/latest.ckpt")
    assert list((tmp_path / "copies" / "run").iterdir()) == []


def test_an_address_of_no_known_kind_is_refused_at_once():
    with pytest.raises(ConfigError, match=r"copy_to nosuch://x/y: .*nosuch"):
        latest_state(copy_to="nosuch://x/y")


def test_a_state_that_cannot_be_written_ends_the_run_before_its_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 0)
    run, latest, save = Run(tmp_path), latest_state(every_n_steps=3), torch.save
    run.after_step = waited_for

    def fails(state, file):
        if state["state_dict"]["step"] == 6:
            raise OSError("No space left on device")
        save(state, file)

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(StorageError, match=r"latest\.ckpt: No space left"):
        run.steps(latest, 10)
    assert run.global_step == 7
    assert run.files() == {"latest.ckpt": 3}


def test_a_state_of_an_epochs_end_that_cannot_be_written_ends_the_run_in_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 0)
    run, latest = Run(tmp_path), latest_state()
    run.current_epoch, run.check_val_every_n_epoch, run.enable_validation, run.should_stop = 0, 1, True, False

    def full(state, file):
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    latest.on_train_start(run, run.lightning_module)
    run.global_step = 2
    latest.on_train_epoch_end(run, run.lightning_module)
    waited_for(latest)
    with pytest.raises(StorageError, match=r"latest\.ckpt: No space left"):
        latest.on_train_batch_start(run, run.lightning_module, None, 0)


def test_training_goes_on_while_a_large_state_is_written_as_it_was(tmp_path, monkeypatch):
    """Three steps change the weights meanwhile; the next save, and the end of the run, wait for it."""
    monkeypatch.setattr(module, "LARGE", 0)
    weights, done, save, seen = torch.zeros(1000), [], torch.save, []
    run = Run(tmp_path)

    def slow(state, file):
        time.sleep(0.3)
        save(state, file)
        done.append(run.global_step)

    def learn(latest):
        weights.fill_(run.global_step)
        seen.append(len(done))

    monkeypatch.setattr(torch, "save", slow)
    run.after_step = learn
    run.save_checkpoint = lambda path, weights_only, storage_options: storage_options(
        {"state_dict": {"step": torch.tensor(run.global_step), "weights": weights}}, path
    )
    run.steps(latest_state(every_n_steps=4), 9)
    assert seen == [0] * 7 + [1, 1]
    assert run.files() == {"latest.ckpt": 8, "previous.ckpt": 4}
    assert torch.load(run.folder / "latest.ckpt")["state_dict"]["weights"].unique().tolist() == [7]


def test_a_kill_while_a_state_is_written_leaves_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 0)
    run, latest, save = Run(tmp_path), latest_state(every_n_steps=3), torch.save

    def killed(state, file):
        save(state, file)
        if state["state_dict"]["step"] == 6:
            file.truncate(100)
            os._exit(9)

    monkeypatch.setattr(torch, "save", killed)
    pid = os.fork()
    if not pid:
        run.steps(latest, 10)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    left = [path for path in run.folder.iterdir() if path.name.startswith(".")]
    assert [path.stat().st_size for path in left] == [100]
    left[0].unlink()
    assert run.files() == {"latest.ckpt": 3}


def test_without_room_nothing_is_saved(tmp_path, monkeypatch):
    run = Run(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(StorageError, match="needs room"):
        run.steps(latest_state(every_n_steps=3), 10)
    assert run.files() == {"latest.ckpt": 3}
