"""Worker processes that decode images: a bound on how many run, and another one in place of a process that dies."""

import anyio
import numpy as np
from anyio import to_process

from vitlab.serving.decoding import ImageLimits, read_pixels
from vitlab.serving.refusal import Refused
from vitlab_runtime.pixels import Preprocessing

BLANK = b"BM:\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0" + bytes(24) + b"\xff\xff\xff\0"  # a pixel


class Decoders:
    """At most `count` processes, which anyio starts when they are needed. Where a deadline cancels a decoding, its
    process is killed."""

    def __init__(self, count: int, limits: ImageLimits, preprocessing: Preprocessing):
        self.count, self.limits, self.preprocessing = count, limits, preprocessing
        self.slots = anyio.CapacityLimiter(count)

    async def start(self) -> None:
        """Start all processes, so that no client waits for one."""
        async with anyio.create_task_group() as tasks:
            for _ in range(self.count):
                tasks.start_soon(self.read, BLANK)

    async def read(self, content: bytes) -> np.ndarray:
        """Decode an image: uint8 (C, S, S). Raises Refused. An image whose process dies is tried in others, one
        more than there are: all may have been killed for another reason."""
        for _ in range(self.count + 1):
            try:
                return await to_process.run_sync(
                    read_pixels, content, self.limits, self.preprocessing, cancellable=True, limiter=self.slots
                )
            except (anyio.BrokenWorkerProcess, ProcessLookupError):  # the latter for one that dies as it starts
                continue
        raise Refused(422, "it cannot be decoded; save it again as PNG")
