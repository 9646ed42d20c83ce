"""One of two processes is lost, refuses, or is slow to end: the run ends soon, with a sentence and a status."""

import os
import signal
import time
from contextlib import contextmanager
from socket import gethostname

import pytest
import pytorch_lightning as pl
from conftest import FEW, image_folder
from omegaconf import OmegaConf
from torch.distributed import DistBackendError, DistNetworkError, DistStoreError
from two_processes import TWO, logged_steps, other_process, sentences, status_of, two_processes, until

from vitlab.config.home import CONF
from vitlab.distributed.data_parallel import DataParallel, register
from vitlab.distributed.lost_process import make_lost_error
from vitlab.errors import DistributedError

pytestmark = pytest.mark.timeout(900)

LONG = ["data=digits", "trainer.max_epochs=1000", "callbacks.interruption.every_n_steps=1"]
SHORT_TIMEOUT = """
from datetime import timedelta
from torch.distributed.distributed_c10d import _set_pg_timeout
from vitlab.tasks import Task
start = Task.on_train_start
def shortly(self):
    _set_pg_timeout(timedelta(seconds=15), None)
    start(self)
Task.on_train_start = shortly
"""
SLOW_CLOSE = """
from vitlab.loggers import WeightsAndBiases
close = WeightsAndBiases.close
def slow(self, exit_code):
    time.sleep(12)
    close(self, exit_code)
    if rank == "0":
        open("closed", "w").write(str(exit_code))
WeightsAndBiases.close = slow
"""


SOON = """
from vitlab.distributed import ending, launcher, signals
ending.GRACE = launcher.GRACE = 6
signals.ANSWER = launcher.LAST_WORDS = 3
"""
PAUSE = """
import {module} as module
own = module.{owner}
def paused(*arguments):
    if rank == "{rank}" and not os.path.exists("paused"):
        open("paused", "w").close()
        time.sleep(600)
    return own(*arguments)
module.{owner} = paused
"""
PLACES = {
    "fit": ("vitlab.tasks", "Task.training_step"),
    "validation": ("vitlab.tasks", "Task.validation_step"),
    "between": ("vitlab.callbacks", "BestModel.read_weights"),
    "test": ("vitlab.tasks", "Task.test_step"),
    "report": ("vitlab.callbacks", "EvaluationReport.on_test_end"),
    "views": ("vitlab.callbacks", "ModelViews.on_test_end"),
}
VIEWED = [word for word in TWO if "model_views" not in word]


@contextmanager
def paused(folder, place, rank, *options, patch="", strategy="ddp"):
    """A run whose rank has come to a place, and stays there; the other one waits for it in a library."""
    module, owner = PLACES[place]
    patch = SOON + PAUSE.format(module=module, owner=owner, rank=rank) + patch
    words = [f"trainer={strategy}" if word == "trainer=ddp" else word for word in VIEWED]
    with two_processes(folder, *FEW, "trainer.max_steps=4", *options, patch=patch, words=words) as first:
        until(lambda: (folder / "paused").exists() or first.poll() is not None, 250)
        assert first.poll() is None, (folder / "err").read_text()
        time.sleep(3)  # in which the other one comes to where it waits
        yield first


def in_mid_epoch(first, folder):
    until(lambda: logged_steps(folder) >= 3 or first.poll() is not None, 400)
    assert first.poll() is None, (folder / "err").read_text()


@pytest.mark.slow
def test_the_first_process_ends_when_the_other_one_is_killed(tmp_path):
    with two_processes(tmp_path, *LONG) as first:
        in_mid_epoch(first, tmp_path)
        os.kill(other_process(first), signal.SIGKILL)
        assert status_of(first, tmp_path, seconds=60) == DistributedError.status
    (sentence,) = sentences(tmp_path)
    assert f"another process of this run has ended (rank 1 on {gethostname()})" in sentence
    assert "resume=" in sentence


@pytest.mark.slow
def test_the_other_process_ends_when_the_first_one_is_killed(tmp_path):
    with two_processes(tmp_path, *LONG) as first:
        in_mid_epoch(first, tmp_path)
        first.kill()
        assert status_of(first, tmp_path, seconds=60) == -signal.SIGKILL
    (sentence,) = sentences(tmp_path)
    assert "another process of this run has ended (rank 0)" in sentence


@pytest.mark.slow
def test_a_process_that_is_silent_is_not_waited_for_without_end(tmp_path):
    with two_processes(tmp_path, *LONG, patch=SHORT_TIMEOUT) as first:
        in_mid_epoch(first, tmp_path)
        os.kill(other_process(first), signal.SIGSTOP)
        assert status_of(first, tmp_path, seconds=120) == DistributedError.status
    (sentence,) = sentences(tmp_path)
    assert f"did not answer (rank 1 on {gethostname()}) within the minutes of trainer.strategy" in sentence


@pytest.mark.slow
def test_the_status_is_that_of_the_process_that_refuses(tmp_path):
    """Of the val images the second one, which is the other process's, is none."""
    root = image_folder(tmp_path / "images", count=12, splits=("train", "val", "test"), size=8)
    sorted((root / "val").rglob("*.png"))[1].write_bytes(b"nothing")
    data = ["data=folder", f"data.source.root={root}", "data.num_classes=2", "data.image_size=8", "crop=whole"]
    data += ["data.cache.root=cache", "global_batch_size=4", "trainer.max_epochs=1"]
    with two_processes(tmp_path, *data, patch="import vitlab.data.image_datamodule as m; m.CHECKED = 1") as first:
        assert status_of(first, tmp_path) == 3
    refused, lost = sorted(sentences(tmp_path))
    assert "DataError: cannot read" in refused
    assert f"another process of this run has ended (rank 1 on {gethostname()}); what it said stands above" in lost


@pytest.mark.slow
@pytest.mark.parametrize("ends_by", ["signal", "refusal"])
def test_the_first_process_closes_its_loggers_in_peace(tmp_path, ends_by):
    """Lightning's watch killed it as soon as the other one, which had nothing to close, had ended."""
    options = [*LONG, "logger=wandb", *(["optimizer.lr=1e9"] if ends_by == "refusal" else [])]
    with two_processes(tmp_path, *options, patch=SLOW_CLOSE) as first:
        if ends_by == "signal":
            in_mid_epoch(first, tmp_path)
            first.send_signal(signal.SIGTERM)
        assert status_of(first, tmp_path) == (143 if ends_by == "signal" else 5)
    assert (tmp_path / "closed").read_text() == ("143" if ends_by == "signal" else "1")


EVERYWHERE = [(place, *who) for place in PLACES for who in (("1", "first"), ("0", "other"), ("0", "group"))]
OFTEN = [("test", "1", "first"), ("views", "0", "other"), ("report", "0", "group")]


@pytest.mark.parametrize(
    ("place", "rank", "to"),
    [pytest.param(*case, marks=pytest.mark.slow if case in OFTEN else pytest.mark.exhaustive) for case in EVERYWHERE],
)
def test_a_signal_ends_all_processes_also_those_that_wait_for_another_one(tmp_path, place, rank, to):
    """A process that waits in a library does not come to its handler. In a fit it is one that sleeps that does not: it
    is to end its step first."""
    with paused(tmp_path, place, rank, strategy="fsdp" if place == "views" else "ddp") as first:
        if to == "group":
            os.killpg(first.pid, signal.SIGTERM)
        else:
            os.kill(first.pid if to == "first" else other_process(first), signal.SIGTERM)
        if place in ("fit", "validation") and to != ("other" if rank == "0" else "first"):
            os.kill(first.pid if rank == "0" else other_process(first), signal.SIGTERM)
        assert status_of(first, tmp_path, seconds=60) in (143, -signal.SIGTERM)
    sentences(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "stopped"), [("test", "1"), ("report", "1"), ("views", "0"), ("between", "1")])
def test_a_process_that_is_silent_after_training_is_not_waited_for_without_end(tmp_path, place, stopped):
    """One that is stopped, or, of the views, one that hangs."""
    with paused(tmp_path, place, stopped, patch=SHORT_TIMEOUT, strategy="fsdp" if place == "views" else "ddp") as first:
        if place != "views":
            os.kill(other_process(first), signal.SIGSTOP)
        assert status_of(first, tmp_path, seconds=120) == DistributedError.status
    assert any("did not answer" in sentence for sentence in sentences(tmp_path))


@pytest.mark.slow
def test_a_stopped_process_does_not_outlive_the_first_one(tmp_path):
    with paused(tmp_path, "test", "1") as first:
        os.kill(other_process(first), signal.SIGSTOP)
        first.kill()
        assert status_of(first, tmp_path, seconds=60) == -signal.SIGKILL
    (sentence,) = sentences(tmp_path)
    assert "another process of this run has ended (rank 0)" in sentence


@pytest.mark.slow
def test_a_process_whose_first_one_is_lost_before_it_begins_ends(tmp_path):
    late = 'if rank == "1":\n    open("started", "w").close()\n    time.sleep(4)\n'
    with two_processes(tmp_path, *LONG, patch=SOON + late) as first:
        until(lambda: (tmp_path / "started").exists(), 250)
        first.kill()
        assert status_of(first, tmp_path, seconds=60) == -signal.SIGKILL
    assert len(sentences(tmp_path)) == 1


# -- quick ones


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            DistStoreError("Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
            "did not answer within",
        ),
        (DistNetworkError("Connection reset by peer"), "another process of this run has ended"),
        (
            DistBackendError("NCCL error: unhandled cuda error"),
            "cannot work together: NCCL error: unhandled cuda error",
        ),
        (RuntimeError("[gloo/transport/tcp/pair.cc:545] Read error [::1]:1: Connection reset by peer."), None),
        (RuntimeError("the loss has no gradient"), None),
    ],
)
def test_errors_of_torch_become_a_sentence(error, words):
    """Those of gloo have no kind of their own, and without other processes are none."""
    refusal = make_lost_error(error)
    assert (refusal is None) == (words is None)
    assert words is None or words in str(refusal)


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "soon"])
def test_a_timeout_that_is_none_is_refused(cli, minutes):
    run = cli("train", "trainer=ddp", "trainer.accelerator=cpu", f"trainer.strategy.timeout_minutes={minutes}")
    assert run.status == 2
    assert "timeout_minutes" in run.err


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_a_strategy_by_its_name_has_the_timeout_of_the_config(strategy):
    register()
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy=strategy, logger=False, enable_checkpointing=False)
    assert type(trainer.strategy) is DataParallel
    configured = OmegaConf.load(CONF / "trainer" / "ddp.yaml").strategy.timeout_minutes
    assert trainer.strategy._timeout.total_seconds() == 60 * configured
