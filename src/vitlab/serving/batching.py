"""Score what waits together: while the model computes a batch, the next one gathers.

B batch, C channels, S image_size, K classes
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

Row = dict[str, np.ndarray]  # what the model says of one image: probabilities (K,), and novelty () if it tells it
Score = Callable[[np.ndarray], dict[str, np.ndarray]]


class Waiting(NamedTuple):
    """The pixels (C, S, S) of an image, and the future that receives what the model says of it."""

    pixels: np.ndarray
    row: asyncio.Future[Row]


class BatchQueue:
    """A queue before `score`, which takes uint8 (B, C, S, S) and runs in a thread of its own, one batch at a time, of
    at most `batch_size` images. No image waits for others: a lone one is scored at once. `note` is told the size of
    each batch. How many may wait is for the caller to limit."""

    def __init__(self, score: Score, batch_size: int, note: Callable[[int], None]):
        self.score, self.batch_size, self.note = score, batch_size, note
        self.waiting: asyncio.Queue[Waiting] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1, "score")

    async def ask(self, pixels: np.ndarray) -> Row:
        """Score one image, (C, S, S). Where the caller is cancelled, the image is left out of the batch to come."""
        row: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait(Waiting(pixels, row))
        return await row

    async def run(self) -> None:
        """Score batch after batch, until cancelled."""
        while True:
            batch = [await self.waiting.get()]
            while len(batch) < self.batch_size and not self.waiting.empty():
                batch.append(self.waiting.get_nowait())
            if batch := [one for one in batch if not one.row.done()]:
                self.note(len(batch))
                await self.answer(batch)

    async def answer(self, batch: list[Waiting]) -> None:
        """Give each image of a batch its row, or the error of the batch."""
        pixels = np.stack([one.pixels for one in batch])
        try:
            found = await asyncio.get_running_loop().run_in_executor(self.thread, self.score, pixels)
        except Exception as error:  # of the runtime: each request is answered, and the queue goes on
            for one in batch:
                if not one.row.done():
                    one.row.set_exception(error)
            return
        for place, one in enumerate(batch):
            if not one.row.done():
                one.row.set_result({name: values[place] for name, values in found.items()})
