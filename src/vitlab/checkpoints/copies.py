"""Further places of a checkpoint: a second name on the same disk, and an address elsewhere."""

import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

from vitlab.atomic_files import writing_whole
from vitlab.errors import StorageError, in_one_line


def link(path: Path, name: Path) -> None:
    """Give a file another name, under which it stays when the first one is given to another; where the file system has
    no second names, copy it."""
    with suppress(FileNotFoundError):
        name.unlink()
    try:
        os.link(path, name)
    except OSError:
        with writing_whole(name) as temporary:
            shutil.copyfile(path, temporary)


class Copies:
    """Copies files to a folder at any address that fsspec knows, in a thread of its own, one after the other. A copy
    has its name once it is whole. Raises StorageError, in whatever is called next, for one that failed."""

    def __init__(self, folder: str):
        self.folder = folder.rstrip("/")
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="copies")
        self.running: Future[None] | None = None

    def begin(self, path: Path, name: str) -> None:
        """Copy a file, which is opened before this returns: it may be renamed or replaced then."""
        self.finish()
        source = open(path, "rb")  # noqa: SIM115 - the thread closes it
        self.running = self.thread.submit(self._copy, source, name)

    def _copy(self, source: IO[bytes], name: str) -> None:
        import fsspec

        with source:
            system, place = fsspec.core.url_to_fs(f"{self.folder}/{name}")
            system.makedirs(place.rpartition("/")[0], exist_ok=True)
            with system.open(f"{place}.tmp", "wb") as target:
                shutil.copyfileobj(source, target, 2**24)
            system.mv(f"{place}.tmp", place)

    def check(self) -> None:
        """Raise StorageError for a copy that has failed."""
        if self.running is not None and self.running.done():
            self.finish()

    def finish(self) -> None:
        """Wait for the copy that is under way."""
        running, self.running = self.running, None
        try:
            if running is not None:
                running.result()
        except Exception as error:  # whatever a library of another storage raises
            raise StorageError(f"a state cannot be copied to {self.folder}: {in_one_line(error)}") from error
