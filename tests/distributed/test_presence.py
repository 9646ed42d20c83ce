"""Who gives no sign is lost, and all name the same."""

from contextlib import closing
from socket import gethostname, socket

import pytest
from torch.distributed import PrefixStore, TCPStore

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
