"""Workers read ahead with one thread each; one that dies or hangs is a sentence, and nothing waits for ever."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from vitlab.config.command import translate_refusal
from vitlab.data.batches.batch import RawBatch
from vitlab.data.loading import loader
from vitlab.data.loading.loader import SLOTS_IN_USE, Loader, StallWatch, choose_num_workers, choose_prefetch
from vitlab.errors import ConfigError, DataError, StorageError
from vitlab.lost_worker import explain_lost_worker

CPU = torch.device("cpu")
GIGABYTE = 2**30


class Numbers(Dataset):
    """Batches that hold their keys; `what` a worker does at key 5."""

    def __init__(self, what=None):
        self.what = what

    def __getitems__(self, keys):
        if 5 in keys and self.what is not None:
            self.what()
        return RawBatch((torch.tensor(keys),), torch.tensor([torch.get_num_threads()]), torch.tensor([os.getpid()]))


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(600)


def stop():
    """As a worker that a disk never answers: no signal but SIGKILL ends it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def make(what=None, num_workers=2, batches=20, **changes):
    order = [[k] for k in range(batches)]
    settings = {"num_workers": num_workers, "prefetch_batches": 2, "stall_timeout": 60, "device": CPU}
    return Loader(Numbers(what), order, **settings | changes)


def test_batches_come_in_order_from_several_processes_with_one_thread_each():
    batches = list(make())
    assert [batch.view.item() for batch in batches] == list(range(20))
    assert {batch.target.item() for batch in batches} == {1}
    assert len({batch.index.item() for batch in batches} - {os.getpid()}) == 2


def test_a_worker_outlives_a_sigterm_that_was_sent_to_all_processes_of_the_run():
    """Not sent from here: a worker ends by a signal of the process that started it."""
    batches = iter(make())
    worker = next(batches).index.item()
    subprocess.run(["kill", "-TERM", str(worker)], check=True)
    assert [batch.view.item() for batch in batches] == list(range(1, 20))


def test_an_epoch_may_be_left_and_the_next_begins_anew():
    several = make()
    for _ in range(3):
        assert next(iter(several)).view.item() == 0
    assert len(list(several)) == 20


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """How a process ends whose workers are killed or hang: its status, what it says, and after how many seconds.

    In processes of their own: torch raises from a signal handler, wherever the main process is at that moment.
    """
    folder = tmp_path_factory.mktemp("ends")
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    settings = {"capture_output": True, "text": True, "timeout": 100}
    environment = os.environ | {"PYTHONPATH": os.path.dirname(__file__)}
    finished = subprocess.run([sys.executable, folder / "program.py", folder], env=environment, **settings)
    assert finished.returncode == 0, finished.stderr
    return {
        name: (status, (folder / name).read_text(), seconds) for name, status, seconds in json.loads(finished.stdout)
    }


PROGRAM = """
    import json, os, signal, sys, time
    import torch
    from test_loader import hang, kill_itself, make, stop
    from vitlab.config.command import leave
    from vitlab.config.refusals import translate_refusal

    def killed_in_a_step():
        for step, batch in enumerate(make()):
            if step == 3:
                os.kill(batch.index.item(), signal.SIGKILL)
            for _ in range(100 if step == 3 else 0):
                time.sleep(0.05)
                torch.ones(2) + 1
        raise SystemExit(77)

    def stopped_in_a_step():  # two batches are ready, whose memory is to be had from the worker
        for step, batch in enumerate(make(num_workers=1, stall_timeout=2)):
            if step == 3:
                time.sleep(1)
                os.kill(batch.index.item(), signal.SIGSTOP)

    def stopped_between_epochs():
        loader = make(stall_timeout=2)
        for worker in {batch.index.item() for batch in loader}:
            os.kill(worker, signal.SIGSTOP)
        list(loader)

    tasks = {
        "one of one": lambda: list(make(kill_itself, 1)),
        "one of two": lambda: list(make(kill_itself, 2)),
        "in a step": killed_in_a_step,
        "hangs": lambda: list(make(hang, stall_timeout=2)),
        "stopped": lambda: list(make(stop, stall_timeout=2)),
        "stopped in a step": stopped_in_a_step,
        "stopped between epochs": stopped_between_epochs,
    }
    results = []
    for name, task in tasks.items():
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.path.join(sys.argv[1], name), os.O_WRONLY | os.O_CREAT), 2)
            os.dup2(2, 1)
            try:
                task()
            except Exception as error:
                leave(translate_refusal(error))
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        results.append((name, status, time.monotonic() - start))
    print(json.dumps(results))
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", ["one of one", "one of two", "in a step"])
def test_a_worker_that_is_killed_ends_the_run_in_a_sentence_within_seconds(ends, which):
    status, words, seconds = ends[which]
    assert status == 3, words
    assert words.strip().startswith("DataError: a data worker died (")
    assert "data.loading.num_workers or data.loading.prefetch_batches lower" in words
    assert len(words.strip().splitlines()) == 1
    assert seconds < 20


@pytest.mark.slow
@pytest.mark.parametrize("which", ["hangs", "stopped", "stopped in a step", "stopped between epochs"])
def test_a_worker_that_hangs_ends_the_run_in_a_sentence_that_names_the_key(ends, which):
    status, words, seconds = ends[which]
    assert status == 3, words
    assert words.strip().startswith(
        "DataError: no batch came from the data workers within data.loading.stall_timeout seconds"
    )
    assert "set data.loading.stall_timeout higher" in words
    assert len(words.strip().splitlines()) == 1
    assert seconds < 30


@pytest.mark.slow  # torch waits five seconds for each worker after an error
def test_other_errors_of_a_worker_stay_what_they_are():
    def wrong_shape():
        raise RuntimeError("shape '[2]' is invalid for input of size 3")

    with pytest.raises(RuntimeError, match=r"shape '\[2\]' is invalid"):
        list(make(wrong_shape, 1))

    def refuse():
        raise DataError("a.png has 4 channels")

    with pytest.raises(DataError) as caught:
        list(make(refuse, 1))
    assert str(translate_refusal(caught.value)) == "a.png has 4 channels"


DIED = "DataLoader worker (pid 42) is killed by signal: Killed. "


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (DIED, "a data worker died (DataLoader worker (pid 42) is killed by signal: Killed.)"),
        ("DataLoader worker (pid(s) 42, 43) exited unexpectedly", "worker (pid(s) 42, 43) exited unexpectedly"),
        ("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that\ndataloader's", "Bus error"),
        ("DataLoader timed out after 300 seconds", "data.loading.stall_timeout"),
        (
            "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)",
            "shared memory",
        ),
        ("unable to write to file </torch_1_2_3>: No space left on device (28)", "shared memory"),
    ],
)
def test_torchs_words_become_a_sentence(words, expected):
    trouble = explain_lost_worker(RuntimeError(words))
    assert isinstance(trouble, DataError)
    assert expected in str(trouble)
    assert "\n" not in str(trouble)
    assert isinstance(translate_refusal(RuntimeError(words)), DataError)


@pytest.mark.parametrize(
    "words",
    [
        "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n bad shape",
        "",
    ],
)
def test_other_words_of_torch_are_left_alone(words):
    assert explain_lost_worker(RuntimeError(words)) is None
    assert translate_refusal(RuntimeError(words)) is None


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), EOFError(), FileNotFoundError(2, "no socket")])
def test_a_batch_that_cannot_be_fetched_is_a_dead_worker_but_for_what_a_worker_raised_itself(error):
    assert "a data worker died (with a batch)" in str(explain_lost_worker(error))
    assert (
        explain_lost_worker(type(error)("Caught FileNotFoundError in DataLoader worker process 0.\nOriginal")) is None
    )


def test_other_errors_are_refusals_as_before():
    assert isinstance(translate_refusal(OSError(errno.ENOSPC, "full", "x")), StorageError)
    assert isinstance(translate_refusal(ConfigError("wrong")), ConfigError)
    assert translate_refusal(OSError(errno.EINVAL, "wrong")) is None
    assert translate_refusal(KeyError("bug")) is None


# -- how many


@pytest.fixture
def machine(monkeypatch):
    """machine(cores, free): a machine with that many cores, and bytes of shared memory."""

    def build(cores, free):
        monkeypatch.setattr("vitlab.data.loading.cores.quota", lambda: float("inf"))
        usage = namedtuple("usage", ["total", "used", "free"])
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(free, 0, free))

    return build


@pytest.mark.parametrize(
    ("cores", "num_workers", "processes", "expected"),
    [(8, None, 1, 8), (64, None, 1, 16), (64, None, 8, 8), (4, None, 8, 1), (8, 0, 1, 0), (8, 3, 1, 3)],
)
def test_workers_share_the_cores(machine, cores, num_workers, processes, expected):
    machine(cores, GIGABYTE)
    assert choose_num_workers(num_workers, processes) == expected


@pytest.mark.parametrize(
    ("free", "asked", "expected"),
    [
        (100 * GIGABYTE, {}, (2, True)),
        (64 * 2**20, {}, (1, False)),  # a container with little shared memory: 8 workers with 3.2 MB each
        (64 * 2**20, {"batch_bytes": 2**30}, (1, False)),
        (64 * 2**20, {"batch_bytes": 2**20}, (2, True)),  # 32 MB for 8 workers: four places each
        (64 * 2**20, {"batch_bytes": 2**20, "processes": 2}, (1, False)),
        (64 * 2**20, {"prefetch": 7}, (7, False)),
        (100 * GIGABYTE, {"prefetch": 7}, (7, True)),
        (0, {"num_workers": 0}, (1, False)),
    ],
)
def test_batches_that_are_ready_fit_the_shared_memory(machine, free, asked, expected):
    machine(8, free)
    settings = {"prefetch": None, "num_workers": 8, "processes": 1, "batch_bytes": 3 * 2**20}
    ready, fits = choose_prefetch(**settings | asked)
    assert (ready, fits) == expected
    if fits:  # half of what is free holds the rings of all
        size = settings | asked
        assert (ready + SLOTS_IN_USE) * size["num_workers"] * size["processes"] * size["batch_bytes"] <= free / 2


def test_without_shared_memory_nothing_limits_the_batches(machine, monkeypatch, tmp_path):
    machine(4, 0)
    monkeypatch.setattr(loader, "SHARED_MEMORY", tmp_path / "none")
    assert choose_prefetch(None, 4, 1, 2**30) == (2, True)


def test_only_the_time_in_which_a_batch_is_awaited_counts(monkeypatch):
    """Not that of the last step and the validation after it, while the loader still holds a batch, as for a GPU."""
    monkeypatch.setattr(loader, "GRACE", 0.0)
    monkeypatch.setattr(loader, "WATCH", 0.01)
    killed = []
    worker = SimpleNamespace(kill=lambda: killed.append(True))
    with StallWatch(lambda: [worker], 0.05) as watch:
        assert list(watch.await_each(lambda: iter(range(3)))) == [0, 1, 2]
        time.sleep(0.2)
        assert killed == []
        next(watch.await_each(lambda: map(time.sleep, [0.2])))
    assert killed == [True]
    assert watch.stalled
