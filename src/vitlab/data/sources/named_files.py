"""Find the image files that a user names: one, those of a folder, those that a pattern fits."""

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path

from vitlab.data.pools.packed_names import PackedNames
from vitlab.data.sources.folder import EXTENSIONS, image_files
from vitlab.errors import DataError

BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def find_images(images: str) -> list[Path]:
    """List the files that a file, a folder or a glob names, sorted. Raises DataError when there is none."""
    return [Path(name) for name in find_image_names(images)]


def find_image_names(images: str) -> PackedNames:
    """Give the same as names, a million of which fit in little memory."""
    found: Iterable[str]
    if os.path.isdir(images):
        found = image_files(str(Path(images)))
    elif os.path.isfile(images):
        found = [images]
    else:
        named = {name for pattern in alternatives(images) for name in glob.glob(pattern, recursive=True)}
        found = sorted(n for n in named if Path(n).suffix.lower() in EXTENSIONS and not os.path.isdir(n))
    names = PackedNames.pack(found)
    if not names:
        raise DataError(f"images={images} names no image file; give a file, a folder or a glob such as 'photos/*.jpg'")
    return names


def alternatives(pattern: str) -> list[str]:
    """Expand the braces of a glob: *.{png,jpg} is *.png and *.jpg."""
    braces = BRACES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [one for choice in braces[1].split(",") for one in alternatives(f"{before}{choice}{after}")]
