"""Tell which processes of a run are lost: each one says, at the store of the run, that it is still there."""

import atexit
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import torch

EVERY = 2.0  # seconds between two signs of a process
SILENCE = 7.0  # seconds after which one that has given no sign is lost
HOST, SIGNS, LOST = "vitlab/host/{}", "vitlab/signs/{}", "vitlab/lost"


class Presence:
    """The signs of this process, which a thread gives for as long as it lives, and those of the others. One that hangs
    in Python gives signs; one that is stopped, or whose machine cannot be reached, gives none."""

    def __init__(self, store: Any, rank: int, world_size: int):
        self.store = store.clone()  # a connection of its own: the process itself may be waiting in the other
        self.rank, self.world_size = rank, world_size
        self.ended = threading.Event()
        self.store.set(HOST.format(rank), socket.gethostname())
        self.store.add(SIGNS.format(rank), 1)
        self.thread = threading.Thread(target=self._tell, daemon=True)
        self.thread.start()
        atexit.register(self.end)

    @classmethod
    def begin(cls) -> "Presence | None":
        """Begin to give signs; None where there are no other processes."""
        group = torch.distributed
        if not (group.is_available() and group.is_initialized() and group.get_world_size() > 1):
            return None
        return cls(group.distributed_c10d._get_default_store(), group.get_rank(), group.get_world_size())

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the process that has the store is gone
            while not self.ended.wait(EVERY):
                self.store.add(SIGNS.format(self.rank), 1)

    def find_lost(self) -> list[str]:
        """Name the processes that give no sign for some seconds; the first one, which has the store, if that does not
        answer. All name those that one of them has missed first: they end one after the other because of these."""
        named = ["rank 0"]

        def look() -> None:
            with suppress(RuntimeError):
                if self.store.check([LOST]):
                    named[:] = self.store.get(LOST).decode().split("\n")
                    return
                before = [self._signs(rank) for rank in range(self.world_size)]
                time.sleep(SILENCE)
                silent = [rank for rank, signs in enumerate(before) if self._signs(rank) == signs and rank != self.rank]
                named[:] = [f"rank {rank}{self._host(rank)}" for rank in silent]
                if silent:
                    self.store.set(LOST, "\n".join(named))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(2 * SILENCE)
        return list(named)

    def _signs(self, rank: int) -> int:
        return int(self.store.add(SIGNS.format(rank), 0))

    def _host(self, rank: int) -> str:
        known = self.store.check([HOST.format(rank)])
        return f" on {self.store.get(HOST.format(rank)).decode()}" if known else ""

    def end(self) -> None:
        """Give no more signs: a thread that comes back from the store while Python ends would abort the process."""
        self.ended.set()
        self.thread.join(EVERY)
