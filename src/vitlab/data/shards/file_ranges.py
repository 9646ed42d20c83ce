"""Read pieces of files: from a local folder, or through fsspec from an object store or a web server.

Nothing open is pickled, and a forked process opens its own connections.
"""

import errno
import os
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from vitlab.data.pools.file_content import content
from vitlab.errors import DataError, format_error

DELAYS = (0.0, 0.5, 2.0, 8.0)  # seconds before each attempt at a remote file
FINAL = (FileNotFoundError, PermissionError)  # another attempt would end as this one did
MOST_OPEN = 128  # files at once; systems allow a process 1,024, or 256
MOST_ASKED = 16  # questions for sizes at once


class ByteRange(NamedTuple):
    """`length` bytes of the file `name`, from `start`."""

    name: str
    start: int
    length: int


class Files(Protocol):
    """The files below `root`. All raise DataError, naming the file, when it cannot be reached."""

    root: str

    def read_file(self, name: str) -> bytes:
        """Read a whole file."""

    def ranges(self, wanted: list[ByteRange]) -> list[bytes]:
        """Read the bytes of each range; fewer where the file ends."""

    def sizes(self, names: list[str]) -> list[int | None]:
        """Give sizes in bytes; None where a server does not tell."""


def open_files(root: str) -> Files:
    """Open the files below a path or a URL. Raises DataError for a kind of URL whose package is not installed."""
    path = root.removeprefix("file://")
    return RemoteFiles(root) if "://" in path else LocalFiles(path)


def make_unreachable_error(place: str, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"there is no file {place}")
    reason = format_error(error)
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        reason = os.strerror(error.errno)
    return DataError(f"cannot read {place}: {reason}")


class LocalFiles:
    """Files in a folder, read by `pread`: no position is shared, so that threads and forks may share a descriptor."""

    def __init__(self, root: str):
        self.root = root
        self._open: OrderedDict[str, Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalFiles, (self.root,)

    def read_file(self, name: str) -> bytes:
        path = Path(self.root, name)
        try:
            return content(path)
        except OSError as error:
            raise make_unreachable_error(str(path), error) from error

    def ranges(self, wanted: list[ByteRange]) -> list[bytes]:
        return [self._range(*one) for one in wanted]

    def _range(self, name: str, start: int, length: int) -> bytes:
        try:
            return os.pread(self._descriptor(name).number, length, start)
        except OSError as error:
            raise make_unreachable_error(os.path.join(self.root, name), error) from error

    def _descriptor(self, name: str) -> "Descriptor":
        with self._lock:
            descriptor = self._open.get(name)
            if descriptor is None:
                descriptor = self._open[name] = Descriptor(os.path.join(self.root, name))
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(name)
            return descriptor

    def sizes(self, names: list[str]) -> list[int | None]:
        found: list[int | None] = []
        for name in names:
            path = os.path.join(self.root, name)
            try:
                found.append(os.stat(path).st_size)
            except OSError as error:
                raise make_unreachable_error(path, error) from error
        return found


class Descriptor:
    """An open file, closed when its last reader lets go of it."""

    def __init__(self, path: str):
        self.number = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class RemoteFiles:
    """Files below a URL that fsspec knows: s3://, gs://, hf://, http(s)://, memory:// and others.

    The ranges of a batch are asked for at once. What fails is asked for again after `DELAYS`, then DataError is raised:
    a network that is down is no damaged image, which `on_bad_image` could skip.
    """

    def __init__(self, root: str):
        self.root = root.rstrip("/")
        self._opened: tuple[int, Any, str] | None = None  # opened by which process, where, under which path
        self._filesystem()

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFiles, (self.root,)

    def _filesystem(self) -> tuple[Any, str]:
        """Give this process's own file system: its connections and thread do not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            import fsspec

            try:
                filesystem, path = fsspec.core.url_to_fs(self.root, skip_instance_cache=True)
            except (ImportError, ValueError) as error:  # an unknown protocol, or one whose package is missing
                raise DataError(f"cannot open {self.root}: {error}") from error
            self._opened = os.getpid(), filesystem, path.rstrip("/")
        return self._opened[1], self._opened[2]

    def read_file(self, name: str) -> bytes:
        return cast(bytes, self._insist([name], lambda filesystem, _, paths: [filesystem.cat_file(paths[0])])[0])

    def ranges(self, wanted: list[ByteRange]) -> list[bytes]:
        def ask(filesystem: Any, numbers: list[int], paths: list[str]) -> list[Any]:
            asked = [wanted[number] for number in numbers]
            ends = [one.start + one.length for one in asked]
            return cast(list[Any], filesystem.cat_ranges(paths, [one.start for one in asked], ends, on_error="return"))

        return self._insist([one.name for one in wanted], ask)

    def sizes(self, names: list[str]) -> list[int | None]:
        def ask(filesystem: Any, numbers: list[int], paths: list[str]) -> list[Any]:
            def size(path: str) -> Any:
                if path in listed:
                    return listed[path]
                try:
                    return filesystem.info(path).get("size")
                except Exception as error:
                    return error

            try:  # one question for all, where the storage has folders
                entries = filesystem.ls(self._filesystem()[1], detail=True)
            except Exception:
                entries = []
            listed = {e["name"]: e["size"] for e in entries if isinstance(e, dict) and e.get("size") is not None}
            with ThreadPoolExecutor(MOST_ASKED) as threads:
                return list(threads.map(size, paths))

        return self._insist(names, ask)

    def _insist(self, names: list[str], ask: Any) -> list[Any]:
        """ask(file system, numbers, paths) -> an answer for each; those that are exceptions are asked for again."""
        answers: list[Any] = [None] * len(names)
        pending = list(range(len(names)))
        for delay in DELAYS:
            time.sleep(delay)
            filesystem, root = self._filesystem()
            try:
                got = ask(filesystem, pending, [f"{root}/{names[number]}" for number in pending])
            except Exception as error:  # each protocol raises its own kinds
                got = [error] * len(pending)
            for number, answer in zip(pending, got, strict=True):
                answers[number] = answer
            pending = [number for number in pending if isinstance(answers[number], Exception)]
            if not pending or any(isinstance(answers[number], FINAL) for number in pending):
                break
        if pending:
            first = next((n for n in pending if isinstance(answers[n], FINAL)), pending[0])
            raise make_unreachable_error(f"{self.root}/{names[first]}", answers[first]) from answers[first]
        return answers
