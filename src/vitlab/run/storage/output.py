"""Find where a command is to write, and refuse a place that cannot be written before the work begins."""

import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vitlab.atomic_files import remove_leftovers
from vitlab.checkpoints.run_folder import RUNS as RUNS
from vitlab.checkpoints.run_folder import is_run, make_folders, make_new
from vitlab.errors import ConfigError, StorageError
from vitlab.invocation import shorten_path

DEVICES = Path("/dev")  # where a link, as stdout, may lead to an ordinary file


@dataclass(frozen=True)
class Output:
    """A file or folder to write to. `home` is the folder that is made for this call alone; None where the user has
    named the place."""

    path: Path
    home: Path | None

    def make(self) -> Path:
        """Make the folders that are missing, and return the place."""
        if self.home is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path
        return shorten_path(make_new(self.home) / self.path.relative_to(self.home))

    def check_apart(self, files: Iterable[Path]) -> None:
        """Raise ConfigError for a place that is one of the files the command reads, or the folder of one."""
        if not os.path.lexists(self.path):
            return  # nothing is replaced, however many files there are
        own = Path(os.path.realpath(self.path.parent), self.path.name)
        own = own.resolve() if own.is_dir() else own
        for file in files:
            places = {Path(os.path.realpath(file)), Path(os.path.realpath(file.parent), file.name)}
            if own in places:
                raise ConfigError(
                    f"output={self.path} would replace {file}, which the command reads; name another file"
                )
            if own in {place.parent for place in places}:
                raise ConfigError(f"output={self.path} holds {file}, which the command reads; name another folder")

    @contextmanager
    def make_folder(self) -> Iterator[Path]:
        """Make the folder, and remove it again if it is empty in the end."""
        with make_folders() as make:
            yield shorten_path(make(self.path, self.home is not None))


def output_file(given: str | None, command: str, home: Path, name: str, *, overwrite: bool) -> Output:
    """Find the file of output=, or `name` in a new folder below `home`, named by the time. Raises ConfigError
    for a file that is there already, unless it may be overwritten, for a device, and for a file of a run; StorageError
    for a place that cannot be written."""
    if given is None:
        new = new_folder(home)
        return Output(new / name, new)
    check_place(given, command)
    if Path(given).is_dir() or given.endswith("/"):
        raise ConfigError(f"output={given} is a folder; name a file")
    if Path(given).exists() and not overwrite:
        raise ConfigError(f"output={given} exists; name another file, or add overwrite=true")
    return Output(Path(given), None)


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Raise ConfigError for a file whose name has none of the endings that the command writes."""
    if path.suffix.lower() not in endings:
        raise ConfigError(f"output={path} ends in none of {', '.join(endings)}; name such a file")


def output_folder(given: str | None, command: str, home: Path, *, overwrite: bool) -> Output:
    """Find the folder of output=, or a new one below `home`. Raises as `output_file`; a folder that holds anything is
    there already."""
    if given is None:
        new = new_folder(home)
        return Output(new, new)
    check_place(given, command)
    path = Path(os.path.realpath(given) if os.path.islink(given) else given)
    if os.path.lexists(given) and not path.is_dir():
        raise ConfigError(f"output={given} is a file or a broken link; name a folder")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise ConfigError(f"output={given} is not empty; name another folder, or add overwrite=true")
    return Output(path, None)


def new_folder(folder: Path) -> Path:
    """Name a folder for one call by the time. Raises StorageError."""
    new = folder.absolute() / time.strftime("%Y-%m-%d_%H-%M-%S")
    check_writable(new, f"output={new}")
    return new


def check_place(given: str, command: str, key: str = "output") -> None:
    """Raise ConfigError or StorageError for a place that is not written to, or cannot be."""
    check_writable(Path(given).absolute(), f"{key}={given}")
    path = Path(os.path.realpath(Path(given).parent)) / Path(given).name  # a link to a file would be replaced itself
    path = path.resolve() if path.is_dir() else path
    kind = path.stat().st_mode if path.exists() else stat.S_IFREG
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) or path.parent == DEVICES:
        raise ConfigError(f"{key}={given} is a device or pipe, which would be replaced; name a file")
    for folder in (path, *path.parents):
        if is_run(folder) and path.relative_to(folder).parts[:1] != (command,):
            raise ConfigError(
                f"{key}={given} lies in the run {folder}; name a place outside the run, or below {folder / command}"
            )
    remove_leftovers(path.parent, of=path.name)


def check_writable(path: Path, given: str) -> None:
    """Raise StorageError unless a file can be made where the path leads, or in the nearest folder above that exists."""
    try:
        path.exists()  # which raises for a name that is too long
        existing = next(folder for folder in path.parents if os.path.lexists(folder))
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise StorageError(f"{given} cannot be written: {error.strerror}; name another place") from error
