"""Images in folders: root/train/<class>/*, and where they exist root/val/<class>/* and root/test/<class>/*."""

from pathlib import Path

from vitlab.data.pools.pool import Pool
from vitlab.data.pools.split_names import check_splits
from vitlab.data.sources.folder_index import indexed
from vitlab.data.sources.folder_scan import EXTENSIONS, image_files
from vitlab.errors import DataError

__all__ = ["EXTENSIONS", "Folder", "image_files"]


class Folder:
    """One class for each folder below train/, in alphabetical order; the other splits hold the same classes or fewer.

    `splits` names the folder below `root` of each split (null: it has none); one that is not there is passed over,
    except train's. Files below a class folder may lie in folders of their own; hidden ones and other extensions are
    passed over. Links lead to what lies in `root`, unless `allow_outside`. The names are kept in an index below
    `index_root`, which makes the next start fast (null: no index); a file rewritten in place is only noticed after that
    index is deleted.
    `in_chans` is None: files may differ, so data.images.mode says what they are converted to.
    """

    in_chans = None

    def __init__(self, *, root: str, splits: dict[str, str | None], index_root: str | None, allow_outside: bool):
        self.root = Path(root)
        self.splits = check_splits(splits)
        self.index_root = index_root
        self.allow_outside = allow_outside
        self.class_names: list[str] = []

    def prepare(self) -> None:
        """Nothing to download. The index is built here, by one process of a machine rather than by all."""
        if self.index_root is not None:
            self.open()

    def open(self) -> dict[str, Pool]:
        train = self.splits["train"]
        if not self.root.is_dir():
            raise DataError(f"data.source.root: there is no folder {self.root}; give one that holds {train}/<class>/*")
        if not (self.root / train).is_dir():
            raise DataError(f"data.source.root: {self.root} has no folder {train}/; images go to {train}/<class>/*")
        index = indexed(self.root, self.splits, self.index_root, self.allow_outside)
        self.class_names = index.class_names
        return index.pools()
