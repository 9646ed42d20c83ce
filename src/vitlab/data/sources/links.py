"""Check where links lead: out of the folder of a data set, to nothing, in a circle, or to a proper file."""

import os

from vitlab.errors import DataError


class Bounds:
    """The folder that the links of a data set may not leave, wherever others on their way lead."""

    def __init__(self, root: bytes):
        self.root = os.path.realpath(root)
        self.folders: dict[bytes, bytes] = {}  # resolved once, so that a link to a file costs two calls of the system

    def check_file(self, link: bytes) -> None:
        """Raise DataError for a link to a file outside."""
        path = link
        try:
            while True:
                folder, name = os.path.split(os.path.join(os.path.dirname(path), os.readlink(path)))
                if folder not in self.folders:
                    self.folders[folder] = os.path.realpath(folder)
                path = os.path.join(self.folders[folder], name)
        except OSError:  # no link: the file itself
            self.check(link, path)

    def check(self, link: bytes, leads_to: bytes) -> None:
        if not is_below(self.root, leads_to):
            raise DataError(
                f"{os.fsdecode(link)} is a link to {os.fsdecode(leads_to)}, outside of data.source.root; set "
                "data.source.root to a folder that holds both, or data.source.allow_outside=true"
            )


def check_folder(link: bytes, bounds: Bounds | None) -> None:
    """Raise DataError for a broken link, or for a link to a folder that contains it or lies outside."""
    leads_to = os.path.realpath(link)
    if not os.path.exists(leads_to):
        raise DataError(f"{os.fsdecode(link)} is a broken link; repair or remove it")
    if is_below(leads_to, os.path.realpath(os.path.dirname(link))):
        raise DataError(f"{os.fsdecode(link)} is a link to a folder that contains the link; remove it")
    if bounds is not None and os.path.isdir(leads_to):
        bounds.check(link, leads_to)


def is_below(folder: bytes, path: bytes) -> bool:
    """Whether a path is the folder or lies in it, both without links."""
    return path == folder or path.startswith(os.path.join(folder, b""))
