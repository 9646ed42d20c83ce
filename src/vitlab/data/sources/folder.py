"""Images in class folders: root/<class>/*, or root/train/<class>/*, and where they exist val/ and test/ beside it."""

from pathlib import Path

from vitlab.data.pools.pool import Pool, Source
from vitlab.data.pools.split_names import check_splits
from vitlab.data.sources.folder_index import open_index
from vitlab.data.sources.folder_scan import EXTENSIONS, class_folders, image_files
from vitlab.errors import DataError

__all__ = ["EXTENSIONS", "Folder", "image_files"]

USUAL = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}  # names of the splits' folders


class Folder(Source):
    """One class for each folder of the training images, in alphabetical order; the other splits hold the same classes
    or fewer.

    `splits` names the folder below `root` of each split (null: it has none); one that is not there is passed over,
    except train's. `splits` null: where `root` has a train/ with class folders, that, and what is called as in `USUAL`;
    else the class folders lie in `root` itself. Files below a class folder may lie in folders of their own; hidden ones
    and other extensions are passed over. Links lead to what lies in `root`, unless `allow_outside`. The names are kept
    in an index below `index_root`, which makes the next start fast (null: no index); a file rewritten in place is only
    noticed after that index is deleted.
    `in_chans` is None: files may differ, so data.images.mode says what they are converted to.
    """

    def __init__(self, *, root: str, splits: dict[str, str | None] | None, index_root: str | None, allow_outside: bool):
        self.root = Path(root)
        self.splits = None if splits is None else check_splits(splits)
        self.index_root = index_root
        self.allow_outside = allow_outside

    def prepare(self) -> None:
        """Nothing to download. The index is built here, by one process of a machine rather than by all."""
        if self.index_root is not None:
            self.open()

    def open(self) -> dict[str, Pool]:
        if not self.root.is_dir():
            raise DataError(
                f"data.source.root: there is no folder {self.root}; give one that holds <class>/* or train/<class>/*"
            )
        splits = self.splits or find_usual_splits(self.root)
        train = splits["train"]
        if not (self.root / train).is_dir():
            raise DataError(f"data.source.root: {self.root} has no folder {train}/; put images into {train}/<class>/*")
        index = open_index(self.root, splits, self.index_root, self.allow_outside)
        self.class_names = index.class_names
        return index.pools()


def find_usual_splits(root: Path) -> dict[str, str]:
    """Find the folder of each split by its usual name; without train/ the classes lie in `root`. Raises DataError for
    splits of which none is to train on, and for images without a class."""
    there = {name for names in USUAL.values() for name in names if (root / name).is_dir()}
    if "train" in there and class_folders(root / "train", None):
        found = {split: next((name for name in names if name in there), None) for split, names in USUAL.items()}
        return {split: name for split, name in found.items() if name is not None}
    folders = set(class_folders(root, None))
    if folders and folders <= there - {"train"}:
        names = " and ".join(f"{name}/" for name in sorted(folders))
        raise DataError(
            f"data.source.root: {root} has {names}, but no train/; put the training images into train/<class>/*"
        )
    if not folders:
        count = sum(path.suffix.lower() in EXTENSIONS for path in root.iterdir())
        held = f"{count:,} images and no" if count else "no"
        raise DataError(
            f"data.source.root: {root} holds {held} class folder; put the images of each class into their own folder, "
            f"{root / '<class>'}"
        )
    return {"train": ""}
