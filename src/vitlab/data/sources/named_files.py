"""Find the image files that a user names: one, those of a folder, those that a pattern fits."""

import glob
import re
from pathlib import Path

from vitlab.data.sources.folder import EXTENSIONS, image_files
from vitlab.errors import DataError

BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def find_images(images: str) -> list[Path]:
    """List the files that a file, a folder or a glob names, sorted. Raises DataError when there is none."""
    path = Path(images)
    if path.is_dir():
        found = [Path(name) for name, _ in image_files(path)]
    elif path.is_file():
        found = [path]
    else:
        named = {Path(name) for pattern in alternatives(images) for name in glob.glob(pattern, recursive=True)}
        found = sorted(p for p in named if p.suffix.lower() in EXTENSIONS and not p.is_dir())
    if not found:
        raise DataError(f"images={images} names no image file; give a file, a folder or a glob such as 'photos/*.jpg'")
    return found


def alternatives(pattern: str) -> list[str]:
    """Expand the braces of a glob: *.{png,jpg} is *.png and *.jpg."""
    braces = BRACES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [one for choice in braces[1].split(",") for one in alternatives(f"{before}{choice}{after}")]
