"""Copy images into a folder for each class."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from vitlab.errors import ConfigError
from vitlab.run.storage.output import check_place

NONE = "none_of_these"


class Sorting:
    """`copy` brings a file to `root`/<class>/<its path below the folder that all files share>. Raises ConfigError for
    classes that cannot name folders of their own, and for a root among the files."""

    def __init__(self, root: Path, home: Path, folders: dict[str, str]):
        self.root = root
        self.home = home
        self.folders = folders

    @classmethod
    def open(cls, root: str, files: Sequence[str], class_names: Sequence[str]) -> "Sorting":
        check_place(root, "predict", key="sort_into")
        folders = {name: re.sub(r"[/\\\0]", "_", name) for name in class_names}
        if len(set(folders.values())) < len(folders) or not folders.keys().isdisjoint(("", ".", "..")):
            raise ConfigError(
                "sort_into= needs a folder for each class, but two class names give the same folder; leave it out"
            )
        homes = {os.path.dirname(os.path.abspath(file)) for file in files}
        home = Path(os.path.commonpath(homes))
        if any(Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(root)) for folder in homes):
            raise ConfigError(f"sort_into={root} holds images that the command reads; name another folder")
        return cls(Path(root), home, folders)

    def copy(self, file: Path, class_name: str | None) -> None:
        """Copy a file into the folder of a class, or for None into that of images of none of the classes."""
        folder = NONE if class_name is None else self.folders[class_name]
        place = self.root / folder / file.absolute().relative_to(self.home)
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
        shutil.copy2(file, temporary)
        os.replace(temporary, place)
