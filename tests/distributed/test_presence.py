"""Who gives no sign is lost, and all name the same."""

import signal
import subprocess
import sys
import time
from contextlib import closing
from socket import gethostname, socket

import pytest
from conftest import SRC
from torch.distributed import PrefixStore, TCPStore
from two_processes import until

from vitlab.distributed import presence
from vitlab.distributed.presence import Presence

HOST = gethostname()


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(presence, "EVERY", 0.05)
    monkeypatch.setattr(presence, "SILENCE", 0.4)
    with closing(socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return PrefixStore("of_a_start", TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False))


def test_those_that_are_there_are_not_lost(store):
    signs = [Presence(store, rank, 3) for rank in range(3)]
    assert [one.find_lost() for one in signs] == [[], [], []]
    for one in signs:
        one.end()


def test_all_name_the_one_that_was_missed_first(store):
    """The second then ends because the third is lost, and is not what the first has to name."""
    signs = [Presence(store, rank, 3) for rank in range(3)]
    signs[2].end()
    assert signs[1].find_lost() == [f"rank 2 on {HOST}"]
    signs[1].end()
    assert signs[0].find_lost() == [f"rank 2 on {HOST}"]
    signs[0].end()


def test_without_the_store_it_is_the_first_that_is_lost(store):
    signs = Presence(store, 1, 2)
    signs.end()
    signs.store = Gone()
    assert signs.find_lost() == ["rank 0"]


class Gone:
    def check(self, keys):
        raise RuntimeError("Connection reset by peer")


def watched(monkeypatch, signs):
    """The status and the names with which each process would end, once it does."""
    ends = []
    monkeypatch.setattr(presence, "leave", lambda *end: ends.append(end))
    monkeypatch.setattr(presence, "end_instead_of_abort", lambda end: None)
    monkeypatch.setattr(presence, "PATIENCE", 0.5)
    monkeypatch.setattr(presence, "NOTICE", 0.2)
    for one in signs:
        one.watch()
    return ends


def test_others_end_with_the_status_and_the_name_of_one_that_refuses(store, monkeypatch):
    signs = [Presence(store, rank, 3) for rank in range(3)]
    ends = watched(monkeypatch, signs)
    signs[2].finishing.set()
    signs[2].refuse(6)
    until(lambda: len(ends) == 2, 5)
    assert ends == [(6, [f"rank 2 on {HOST}"])] * 2
    for one in signs:
        one.end()


def test_others_end_when_one_gives_no_sign_though_nothing_has_failed(store, monkeypatch):
    signs = [Presence(store, rank, 3) for rank in range(3)]
    ends = watched(monkeypatch, signs)
    signs[1].end()
    until(lambda: len(ends) == 2, 10)
    assert ends == [(7, [f"rank 1 on {HOST}"])] * 2
    for one in signs:
        one.end()


def test_one_that_has_done_its_work_is_not_missed(store, monkeypatch):
    signs = [Presence(store, rank, 3) for rank in range(3)]
    ends = watched(monkeypatch, signs)
    signs[1].leave_done()
    signs[1].end()
    time.sleep(2)
    assert not ends
    assert signs[0].find_lost() == []
    for one in signs:
        one.end()


ABORT = """
import ctypes, sys, threading, time
sys.path.insert(0, {src!r})
from vitlab.distributed.ending import end_instead_of_abort, leave
end_instead_of_abort(lambda: leave(7, ["rank 1"]) if {lost} else None)
threading.Thread(target=ctypes.CDLL(None).abort).start()
time.sleep(60)
"""


@pytest.mark.parametrize(("lost", "status"), [(True, 7), (False, -signal.SIGABRT)])
def test_a_process_that_a_library_aborts_names_the_one_that_is_lost(lost, status):
    run = subprocess.run(
        [sys.executable, "-c", ABORT.format(src=str(SRC), lost=lost)], capture_output=True, text=True, timeout=30
    )
    assert run.returncode == status, run.stderr
    assert ("another process of this run has ended (rank 1)" in run.stderr) == lost
