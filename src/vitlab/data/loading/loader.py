"""Start worker processes that read batches: how many, how far ahead, and what happens when one of them dies."""

import functools
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, TypeVar

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitlab.data.batches.batch import on_device
from vitlab.data.loading.cores import find_core_share
from vitlab.data.loading.worker import WATCH, start_worker
from vitlab.data.order.sampler import EvaluationOrder, TrainingOrder
from vitlab.distributed.environment import is_other_rank
from vitlab.lost_worker import LOST, SHARED_MEMORY, explain_lost_worker

Item = TypeVar("Item")
MOST_WORKERS = 16
GRACE = 2.0  # seconds that torch's own timeout has to raise before ours ends the workers
ENOUGH_CORES, CORES_OF_GPU = 4, 2  # for a GPU: with fewer it may wait for images; for the process itself
SLOTS_IN_USE = 2  # beside those that are ready: the batch in use, and one being copied


class Loader(DataLoader[Any]):
    """A DataLoader of whole batches whose order counts its own position: it has no state, and Lightning takes it as
    resumable. Batches come on `device` if that is a GPU. A worker that was killed, or is silent for `stall_timeout`
    seconds (0: for ever), is a DataError. Of batches in a ring (`BatchesInRing`) only the newest two hold.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        order: TrainingOrder | EvaluationOrder,
        *,
        num_workers: int,
        prefetch_batches: int | None,
        stall_timeout: float,
        device: torch.device,
    ):
        with_workers: dict[str, Any] = {}
        if num_workers:
            with_workers = {
                "prefetch_factor": prefetch_batches,
                "persistent_workers": True,
                "timeout": stall_timeout,
                "worker_init_fn": start_worker,
            }
        self.device = device
        self.held: Any = None
        super().__init__(
            dataset,
            batch_sampler=order,
            num_workers=num_workers,
            collate_fn=return_batch,
            pin_memory=device.type == "cuda",
            **with_workers,
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        watch = StallWatch(lambda: getattr(self._iterator, "_workers", ()), self.timeout)  # private, both
        try:
            with watch:
                batches = self._hold_memory(watch.await_each(super().__iter__))
                yield from copy_ahead(batches, self.device) if self.device.type == "cuda" else batches
        except (RuntimeError, *LOST) as error:
            trouble = explain_lost_worker(error, stalled=watch.stalled) if self.num_workers else None
            if trouble is None:
                raise
            watch.end()  # the others, too, or the end of the process would wait for those that hang
            raise trouble from error

    def _hold_memory(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Keep the workers' memory at its address here, where every batch in it would have to be mapped anew."""
        for batch in batches:
            self.held = None if self.pin_memory else batch
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class StallWatch:
    """Kills the workers once a batch is awaited for longer than `seconds` (0: never); `stalled` says whether it did.

    torch's own timeout covers the wait for a worker's message, but not the one for the memory that the message speaks
    of; and a worker that a disk or SIGSTOP holds takes no notice of SIGTERM, so that the end of the process would wait
    for it. `workers` is called when they are to be ended.
    """

    def __init__(self, workers: Callable[[], Sequence[BaseProcess]], seconds: float):
        self.workers, self.seconds, self.stalled = workers, seconds, False
        self.since: float | None = None  # the last batch was asked for
        self.over = threading.Event()

    def __enter__(self) -> "StallWatch":
        if self.seconds:
            threading.Thread(target=self.look, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()

    def await_each(self, begin: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """Yield the batches of an iterator that is begun here, and may wait for its workers then; while the next one is
        awaited, the time runs."""
        self.since = time.monotonic()
        iterator = begin()
        while True:
            self.since = time.monotonic()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.since = None
            yield batch

    def look(self) -> None:
        while not self.over.wait(WATCH):
            since = self.since
            if since is not None and time.monotonic() - since > self.seconds + GRACE:
                self.stalled = True
                for worker in self.workers():
                    worker.kill()
                return

    def end(self) -> None:
        """Kill the workers, and wait until they are gone."""
        with silence_torch():
            for worker in self.workers():
                worker.kill()
            for worker in self.workers():
                worker.join()


@contextmanager
def silence_torch() -> Iterator[None]:
    """Keep torch from raising, from a handler and in place of another error, where a worker ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def return_batch(batch: Any) -> Any:
    """Collate nothing: the data set gives whole batches."""
    return batch


@functools.cache
def copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Give the stream for copies to a device: one for all loaders, as memory taken on a stream is kept for it."""
    return torch.cuda.Stream(device)


def copy_ahead(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """Copy each batch to the GPU on a stream of its own, while the model computes with the one before it."""
    copies = copy_stream(device)
    waiting: tuple[Any, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(copies):
            copied = on_device(batch, device), copies.record_event()
        if waiting is not None:
            yield wait_for_copy(*waiting, device)
        waiting = copied
    if waiting is not None:
        yield wait_for_copy(*waiting, device)


def wait_for_copy(batch: Any, copied: torch.cuda.Event, device: torch.device) -> Any:
    """Make what follows on the current stream wait for the copy, and keep the memory until it is done."""
    current = torch.cuda.current_stream(device)
    current.wait_event(copied)

    def use(tensor: Tensor) -> Tensor:
        tensor.record_stream(current)
        return tensor

    return apply_to_collection(batch, Tensor, use)


def choose_num_workers(num_workers: int | None, processes: int, *, for_gpu: bool = False) -> int:
    """Return the number of workers that read for one of `processes` on this machine; None: one for each core of its
    share (see `find_core_share`), up to 16. Of the cores for a GPU, two are left to the threads that start its kernels,
    copy batches and run the backward pass; the first process warns if these cores are few."""
    if num_workers is not None:
        return num_workers
    cores = int(find_core_share(processes) + 1e-6)
    if for_gpu and cores < ENOUGH_CORES and not is_other_rank():
        warnings.warn(
            f"this process feeds a GPU with {cores} CPU core{'s' * (cores != 1)}, which may leave the GPU waiting for "
            f"images; give it {ENOUGH_CORES} or more, as with srun --cpus-per-task (docs/machines.md)",
            stacklevel=2,
        )
    return max(1, min(cores - CORES_OF_GPU * for_gpu, MOST_WORKERS))


def choose_prefetch(prefetch: int | None, num_workers: int, processes: int, batch_bytes: int) -> tuple[int, bool]:
    """Choose how many batches each worker keeps ready, and tell whether they fit into a ring.

    None: two, or fewer where the batches of all workers and processes would take more than half of the free shared
    memory.
    """
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 2**63
    fits = free // 2 // processes // max(batch_bytes * num_workers, 1)
    ready = prefetch or int(max(1, min(2, fits - SLOTS_IN_USE)))
    return ready, fits >= ready + SLOTS_IN_USE
