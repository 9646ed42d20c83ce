"""The image files that a user names, in the order of their whole paths."""

import os

import pytest

from vitlab.data.sources.named_files import find_image_names
from vitlab.errors import DataError

NAMES = [
    "a/x.jpg",
    "a.jpg",
    "a b/x.PNG",
    "a-/b/x.webp",
    "a!/x.jpg",
    "z.jpg/x.gif",
    "é/x.jpg",
    "\udcff/x.jpg",
    "日本.tar.jpeg",
]
OTHERS = [".hidden/x.jpg", "a/.x.jpg", "a/x.txt", "a/jpg"]


def test_files_are_sorted_by_their_whole_path(tmp_path):
    for name in NAMES + OTHERS:
        path = os.path.join(tmp_path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").close()
    os.symlink("a", tmp_path / "link")
    os.symlink("nowhere", tmp_path / "broken.jpg")
    found = [os.path.relpath(name, tmp_path) for name in find_image_names(str(tmp_path))]
    assert found == sorted([*NAMES, "broken.jpg"], key=os.fsencode)


def test_a_folder_below_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    (tmp_path / "photos" / "private").mkdir(parents=True)
    scandir = os.scandir

    def denied(path):
        if str(path).endswith("private"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(DataError, match="private cannot be listed: Permission denied"):
        find_image_names(str(tmp_path / "photos"))
