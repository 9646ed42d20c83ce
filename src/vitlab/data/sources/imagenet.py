"""ImageNet-1k from its official archives: 1,281,167 + 50,000 images (Russakovsky et al., 2015, arXiv:1409.0575)."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from filelock import FileLock

from vitlab.data.pools.pool import Pool
from vitlab.data.sources.folder import Folder
from vitlab.errors import DataError, format_error


class ImageNet(Folder):
    """torchvision's layout: train/<WordNet id>/*, val/<WordNet id>/* and meta.bin, the names of the classes.

    What is missing is unpacked from the archives that image-net.org gives to those who register: put
    ILSVRC2012_devkit_t12.tar.gz, ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar into `root`; torchvision checks
    their checksums. The published validation images are the test split, since the published test set has no labels.
    """

    def __init__(self, *, root: str, index_root: str | None, allow_outside: bool):
        splits: dict[str, str | None] = {"train": "train", "test": "val"}
        super().__init__(root=root, splits=splits, index_root=index_root, allow_outside=allow_outside)

    def prepare(self) -> None:
        from torchvision.datasets import imagenet

        if not self.root.is_dir():
            raise DataError(f"data.source.root: there is no folder {self.root}; give the one with ImageNet's archives")
        try:
            if not self._complete():
                with FileLock(self.root / ".ImageNet.lock"):
                    if not (self.root / imagenet.META_FILE).is_file():
                        imagenet.parse_devkit_archive(self.root)
                    self._unpack("train", imagenet.parse_train_archive)
                    self._unpack("val", imagenet.parse_val_archive)
        except Exception as error:  # a checksum, a damaged archive, a full disk: torchvision raises many kinds
            reason = format_error(error)
            raise DataError(
                f"ImageNet is not complete in {self.root} ({reason}); put the three archives of image-net.org there, "
                "or point data=imagenet_folder data.source.root=... at images in train/<class>/* and val/<class>/*"
            ) from error
        super().prepare()

    def open(self) -> dict[str, Pool]:
        from torchvision.datasets.imagenet import load_meta_file

        pools = super().open()
        try:
            names = load_meta_file(self.root)[0]
            self.class_names = make_distinct({wnid: names[wnid][0] for wnid in self.class_names})
        except Exception as error:  # a damaged file: torch raises many kinds
            raise DataError(
                f"{self.root / 'meta.bin'} does not name the classes of {self.root / 'train'}; delete it, and it is "
                "made again from ILSVRC2012_devkit_t12.tar.gz"
            ) from error
        return pools

    def _complete(self) -> bool:
        return all((self.root / name).exists() for name in ("meta.bin", "train", "val"))

    def _unpack(self, folder: str, parse: Any) -> None:
        """Unpack into another folder first: one that a killed process left half filled is not taken for the data."""
        if (self.root / folder).exists():
            return
        partial = f".{folder}.unfinished"
        shutil.rmtree(Path(self.root, partial), ignore_errors=True)
        parse(self.root, folder=partial)
        os.rename(self.root / partial, self.root / folder)


def make_distinct(names: dict[str, str]) -> list[str]:
    """Make class names distinct by adding the WordNet id where two share one: crane is a bird and a machine."""
    times = Counter(names.values())
    return [name if times[name] == 1 else f"{name} ({wnid})" for wnid, name in names.items()]
