"""Work on every image of a pool once, in several processes, with the results in order and a progress bar."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.data import DataLoader

from vitlab.data.loading.worker import start_worker

Result = TypeVar("Result")


def map_in_order(
    work: Callable[[range], Result], pieces: Sequence[range], *, done: int, title: str, unit: str, num_workers: int
) -> Iterator[Result]:
    """Yield work(piece) for each piece, in order; little is computed ahead of what has been taken.

    The bar, in a terminal, counts what the pieces hold, from `done` on, in `unit`; elsewhere a line says what is done.
    Workers end when this process does, even if it is killed.
    """
    total = done + sum(len(piece) for piece in pieces)
    loader: DataLoader[Result] = DataLoader(
        pieces,  # type: ignore[arg-type]  # a sequence is a map-style data set
        batch_size=None,
        num_workers=min(num_workers, len(pieces)),
        collate_fn=work,  # type: ignore[arg-type]  # without batches it takes one item, in the worker
        worker_init_fn=start_worker,
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    shown = sys.stdout.isatty()
    if not shown:
        print(f"{title}: {total:,} {unit}" + (f", {done:,} of them done already" if done else ""), flush=True)
    with Progress(*columns, transient=True, disable=not shown) as progress:
        task = progress.add_task(title, total=total, completed=done)
        for piece, result in zip(pieces, loader, strict=True):
            yield result
            progress.advance(task, len(piece))


def cut(stop: int, length: int, start: int = 0) -> list[range]:
    """Cut the numbers from `start` to `stop` into pieces of `length`, the last one shorter."""
    return [range(begin, min(begin + length, stop)) for begin in range(start, stop, length)]
