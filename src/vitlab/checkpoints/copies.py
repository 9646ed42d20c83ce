"""Further places of a checkpoint: a second name on the same disk, and an address elsewhere."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from vitlab.atomic_files import write_atomically
from vitlab.errors import ConfigError, StorageError, format_error


def link(path: Path, name: Path) -> None:
    """Give a file another name, under which it stays when the first one is given to another; where the file system has
    no second names, copy it."""
    with suppress(FileNotFoundError):
        name.unlink()
    try:
        os.link(path, name)
    except OSError:
        with write_atomically(name) as temporary:
            shutil.copyfile(path, temporary)


class Copies:
    """Copies files to a folder at any address that fsspec knows. A copy has its name once it is whole. Raises
    ConfigError for an address of no kind that is known here."""

    def __init__(self, folder: str):
        import fsspec

        self.folder = folder.rstrip("/")
        kinds, separator, _ = folder.partition("://")
        try:
            for kind in kinds.split("::") if separator else ():  # as simplecache::s3
                fsspec.get_filesystem_class(kind)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"callbacks.latest_state.copy_to {folder}: {format_error(error)}") from error

    def copy(self, path: Path, name: str) -> None:
        """Copy a file that nobody renames meanwhile. Raises StorageError."""
        import fsspec

        try:
            system, place = fsspec.core.url_to_fs(f"{self.folder}/{name}")
            system.makedirs(place.rpartition("/")[0], exist_ok=True)
            try:
                with open(path, "rb") as source, system.open(f"{place}.tmp", "wb") as target:
                    shutil.copyfileobj(source, target, 2**24)
                system.mv(f"{place}.tmp", place)
            except BaseException:
                with suppress(Exception):
                    system.rm_file(f"{place}.tmp")
                raise
        except Exception as error:  # whatever a library of another storage raises
            raise StorageError(f"the checkpoint cannot be copied to {self.folder}: {format_error(error)}") from error
