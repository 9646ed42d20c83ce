"""Tell which processes of a run are lost: each one says, at the store of the run, that it is still there."""

import atexit
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from vitlab.distributed.ending import ENDED, NO_ANSWER, abort_again, end_instead_of_abort, leave
from vitlab.errors import DistributedError

EVERY = 2.0  # seconds between two signs of a process
SILENCE = 7.0  # seconds after which one that has given no sign is lost, where an operation with it has failed
PATIENCE = 20.0  # seconds after which one is lost although nothing has failed: it may hold Python's lock for long
NOTICE = 15.0  # seconds that a process has to see by itself that another one is gone
HOST, SIGNS, LOST, STATUS = "vitlab/host/{}", "vitlab/signs/{}", "vitlab/lost", "vitlab/status"
LEFT = "vitlab/left/{}"  # of a process that has done its work
CURRENT: list["Presence"] = []  # of a process that a launcher has started, while its run lasts


class Presence:
    """The signs of this process, which a thread gives for as long as it lives, and those of the others. One that hangs
    in Python gives signs; one that is stopped, or whose machine cannot be reached, gives none."""

    def __init__(self, store: Any, rank: int, world_size: int):
        self.store = store.clone()  # a connection of its own: the process itself may be waiting in the other
        self.rank, self.world_size = rank, world_size
        self.ended, self.finishing = threading.Event(), threading.Event()
        self.looks_in_vain = 0  # since the store has answered, and the process before this one has given a sign
        self.lost: list[str] = []
        self.status = DistributedError.status
        self.has_first_left = False
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
        """Give signs, and look, in a ring, for those of the process before this one: any number of processes costs each
        the same."""
        before, seen = (self.rank - 1) % self.world_size, 0
        with suppress(RuntimeError):  # the process that has the store is gone
            while not self.ended.wait(EVERY):
                self.store.add(SIGNS.format(self.rank), 1)
                self._read_lost()
                self.has_first_left = self.has_first_left or self._has_left(0)
                signs = self._signs(before)
                if signs != seen or signs == 0 or self._has_left(before):
                    seen, self.looks_in_vain = signs, 0

    def watch(self) -> None:
        """From now on, end this process when another one is lost and the main thread, which waits for it, does not see
        that by itself, as with NCCL."""
        threading.Thread(target=self._watch, daemon=True).start()
        end_instead_of_abort(self._end_lost)

    def _watch(self) -> None:
        while not self.lost:
            if self.finishing.wait(EVERY) or (self.has_first_left and not self.thread.is_alive()):
                return
            self.looks_in_vain += 1
            if not self.thread.is_alive() or self.looks_in_vain * EVERY > PATIENCE:
                self.lost = self.find_lost()  # none if it was slow
                self.looks_in_vain = 0
        if not self.finishing.wait(NOTICE):
            leave(self.status, self.lost)

    def _end_lost(self) -> None:
        """End the process if another one is lost, or if NCCL has waited in vain for one that is there."""
        if (lost := self.find_lost()) or torch.distributed.get_backend() == "nccl":
            leave(self.status, lost, ENDED if lost else NO_ANSWER)

    def find_lost(self) -> list[str]:
        """Name the processes that give no sign for some seconds; the first one, which has the store, if that does not
        answer. All name those that one of them has missed first: they end one after the other because of these."""
        named = ["rank 0"]

        def look() -> None:
            self._read_lost()
            if not self.lost:
                before = [self._signs(rank) for rank in range(self.world_size)]
                time.sleep(SILENCE)
                silent = [rank for rank, signs in enumerate(before) if self._is_silent(rank, signs)]
                if silent:
                    self._miss(silent)
                    self._read_lost()
            named[:] = self.lost

        if not self.lost:
            self._ask(look)
        return list(self.lost or named)

    def refuse(self, status: int) -> None:
        """Tell the others that this process ends with that status, unless another one was missed before."""

        def tell() -> None:
            if not self.store.check([LOST]):
                self.store.set(STATUS, str(status))
                self._miss([self.rank])

        self._ask(tell)
        if self.rank == 0:  # which may have the store, while they read
            time.sleep(1.5 * EVERY)

    def leave_done(self) -> None:
        """Tell the others that this process has done its work. The first one, which may have the store, gives them some
        seconds to leave, too."""
        self.finishing.set()

        def tell() -> None:
            self.store.set(LEFT.format(self.rank), "")
            end = time.monotonic() + (2 * EVERY if self.rank == 0 else 0)
            while time.monotonic() < end and not all(self._has_left(rank) for rank in range(self.world_size)):
                time.sleep(EVERY / 20)

        self._ask(tell)

    def _ask(self, question: Callable[[], None]) -> None:
        """Ask the store, which may never answer."""

        def ask() -> None:
            with suppress(RuntimeError):
                question()

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(2 * SILENCE)

    def _miss(self, ranks: list[int]) -> None:
        self.store.compare_set(LOST, "", "\n".join(f"rank {rank}{self._host(rank)}" for rank in ranks))

    def _read_lost(self) -> None:
        """Read which processes were missed first, and the exit status of one that has refused to go on."""
        if not self.lost and self.store.check([LOST]):
            if self.store.check([STATUS]):
                self.status = int(self.store.get(STATUS))
            self.lost = self.store.get(LOST).decode().split("\n")

    def _is_silent(self, rank: int, signs: int) -> bool:
        """Whether a process that has begun, and not left, has given no sign since."""
        is_other = rank != self.rank and signs > 0
        return is_other and self._signs(rank) == signs and not self._has_left(rank)

    def _has_left(self, rank: int) -> bool:
        return bool(self.store.check([LEFT.format(rank)]))

    def _signs(self, rank: int) -> int:
        return int(self.store.add(SIGNS.format(rank), 0))

    def _host(self, rank: int) -> str:
        known = self.store.check([HOST.format(rank)])
        return f" on {self.store.get(HOST.format(rank)).decode()}" if known else ""

    def end(self) -> None:
        """Give no more signs: a thread that comes back from the store while Python ends would abort the process."""
        self.finishing.set()
        self.ended.set()
        self.thread.join(EVERY)
        abort_again()


def tell_status(status: int) -> None:
    """Tell the other processes that this one ends with that status; not where it ends because of another one."""
    for presence in CURRENT:
        if status != DistributedError.status:
            presence.refuse(status)


@contextmanager
def watch_launched(open_store: Callable[[], Any], find_status: Callable[[BaseException], int]) -> Iterator[None]:
    """Within, if torchrun or srun has started several processes, give signs from this one and watch those of the
    others, from before they form a group. Tell them the exit status of an error that leaves."""
    rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID"))
    world_size = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)
    if rank is None or world_size == 1:
        yield
        return
    presence = Presence(open_store(), int(rank), world_size)
    presence.watch()
    CURRENT.append(presence)
    try:
        yield
        presence.leave_done()
    except BaseException as error:
        tell_status(find_status(error))
        raise
    finally:
        CURRENT.clear()
        presence.finishing.set()
