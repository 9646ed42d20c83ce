"""A source that is opened once, however many ask for its pools."""

import functools
from typing import Any

from vitlab.data.pools.pool import Pool, Source


class OpenedSource:
    """Give the pools of a source, which is prepared and opened at the first call of `open`; all else is the source's
    own."""

    def __init__(self, source: Source):
        self.source = source

    @functools.cached_property
    def _pools(self) -> dict[str, Pool]:
        self.source.prepare()
        return self.source.open()

    def prepare(self) -> None:
        """Nothing: `open` prepares."""

    def open(self) -> dict[str, Pool]:
        return self._pools

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)
