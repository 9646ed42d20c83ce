"""Image folders: what counts as an image, what is refused, and the index that a second start reads."""

import os
import pickle
import time
from pathlib import Path

import pytest

from vitlab.data import Folder
from vitlab.data.sources import folder_index
from vitlab.errors import ConfigError, DataError

SPLITS = {"train": "train", "val": "val", "test": "test"}


def folder(root, index_root=None, splits=SPLITS, allow_outside=False):
    return Folder(root=str(root), splits=splits, index_root=index_root and str(index_root), allow_outside=allow_outside)


@pytest.fixture
def tree(tmp_path, picture):
    """train/ with the classes cat and dog; nested files, hidden ones, and others that are no images."""
    root = tmp_path / "tree"
    for name in ("dog/2.png", "cat/b.JPG", "cat/a/deep/1.png", "dog/10.png"):
        picture(root / "train" / name)
    picture(root / "train" / "cat" / ".hidden.png")
    picture(root / "train" / ".hidden" / "1.png")
    (root / "train" / "cat" / "notes.txt").write_text("no image")
    (root / "train" / "cat" / "png").write_text("no image")
    (root / "train" / "readme.txt").write_text("no class")
    return root


def names(pool, root):
    return [str(Path(pool.name(i)).relative_to(root)) for i in range(len(pool))]


# -- what is found


def test_classes_are_in_order_and_nested_images_are_found(tree):
    source = folder(tree)
    pools = source.open()
    assert source.class_names == ["cat", "dog"]
    assert list(pools) == ["train"]
    assert names(pools["train"], tree / "train") == ["cat/a/deep/1.png", "cat/b.JPG", "dog/10.png", "dog/2.png"]
    assert pools["train"].targets.tolist() == [0, 0, 1, 1]
    assert pools["train"].load(0) == (tree / "train/cat/a/deep/1.png").read_bytes()


def test_hidden_folders_and_linked_folders_within_a_class_are_passed_over(tree, picture):
    picture(tree / "train" / "cat" / ".thumbnails" / "1.png")
    (tree / "train" / "cat" / "again").symlink_to(tree / "train" / "dog")
    (tree / "train" / "cat" / "again.png").symlink_to(tree / "train" / "dog")
    assert len(folder(tree).open()["train"]) == 4


def test_classes_and_files_may_be_links(tree, tmp_path):
    (tmp_path / "links" / "train").mkdir(parents=True)
    (tmp_path / "links" / "train" / "cat").symlink_to(tree / "train" / "cat")
    (tmp_path / "links" / "train" / "dog").mkdir()
    (tmp_path / "links" / "train" / "dog" / "a.png").symlink_to(tree / "train" / "dog" / "2.png")
    pool = folder(tmp_path / "links", allow_outside=True).open()["train"]
    assert names(pool, tmp_path / "links" / "train") == ["cat/a/deep/1.png", "cat/b.JPG", "dog/a.png"]
    assert pool.load(2) == (tree / "train" / "dog" / "2.png").read_bytes()


def test_names_that_are_not_utf_8_are_read(tree, tmp_path, picture):
    picture(tree / "train" / "dog" / "ü.png")
    strange = os.fsencode(tree / "train" / "dog") + b"/\xff\xfe.png"
    os.rename(tree / "train" / "dog" / "10.png", strange)
    age(tree)
    for _ in range(2):
        pool = folder(tree, tmp_path / "index").open()["train"]
        assert os.fsencode(pool.name(4)) == strange
        assert all(pickle.loads(pickle.dumps(pool)).load(i) == pool.load(i) for i in range(5))


def test_splits_keep_the_numbers_of_the_training_classes(tree, picture):
    picture(tree / "val" / "dog" / "1.png")
    picture(tree / "test" / "cat" / "1.png")
    picture(tree / "test" / "dog" / "1.png")
    pools = folder(tree).open()
    assert list(pools) == ["train", "val", "test"]
    assert pools["val"].targets.tolist() == [1]  # it has no cat
    assert pools["test"].targets.tolist() == [0, 1]


def test_splits_may_have_other_names(tree, picture):
    picture(tree / "val" / "dog" / "1.png")
    pools = folder(tree, splits={"train": "train", "val": None, "test": "val"}).open()
    assert names(pools["test"], tree) == ["val/dog/1.png"]
    assert list(pools) == ["train", "test"]


def test_a_link_to_nothing_is_named(tree):
    (tree / "train" / "cat" / "gone.png").symlink_to(tree / "gone.png")
    with pytest.raises(DataError, match=r"gone\.png is a broken link"):
        folder(tree).open()


# -- what is refused


def test_a_missing_folder_is_refused(tmp_path, refused):
    refused(folder(tmp_path / "nowhere"), "data.source.root", tmp_path / "nowhere")
    refused(folder(tmp_path / "nowhere", tmp_path), "data.source.root", tmp_path / "nowhere")


def test_a_folder_without_train_is_refused(tmp_path, refused):
    refused(folder(tmp_path), tmp_path, "train/<class>/*")
    refused(folder(tmp_path, splits={"train": "learn"}), tmp_path, "learn/<class>/*")


def test_a_folder_without_classes_is_refused(tmp_path, refused):
    (tmp_path / "train" / ".hidden").mkdir(parents=True)
    refused(folder(tmp_path), tmp_path / "train", "no class folder")


def test_an_empty_class_is_refused(tree, refused):
    (tree / "train" / "emu").mkdir()
    refused(folder(tree), tree / "train" / "emu", "holds no image")


def test_a_class_that_train_does_not_have_is_refused(tree, picture, refused):
    picture(tree / "val" / "emu" / "1.png")
    refused(folder(tree), tree / "val" / "emu", tree / "train")


def test_a_link_to_nothing_is_refused(tree, refused):
    (tree / "train" / "cat" / "gone.png").symlink_to(tree / "gone.png")
    refused(folder(tree), tree / "train" / "cat" / "gone.png", "broken link")


@pytest.mark.parametrize("splits", [{"train": "a", "valid": "b"}, {"val": "a"}, {"train": None}])
def test_splits_that_are_unknown_or_miss_train_are_refused(tmp_path, splits):
    with pytest.raises(ConfigError, match=r"data\.source\.splits"):
        folder(tmp_path, splits=splits)


# -- splits that nobody names


def plain(root):
    return folder(root, splits=None)


def test_the_folders_of_splits_are_found(tree, picture):
    assert list(plain(tree).open()) == ["train"]
    picture(tree / "valid" / "dog" / "1.png")
    picture(tree / "test" / "cat" / "1.png")
    pools = plain(tree).open()
    assert {split: len(pool) for split, pool in pools.items()} == {"train": 4, "val": 1, "test": 1}
    picture(tree / "val" / "dog" / "1.png")
    picture(tree / "val" / "dog" / "2.png")
    assert len(plain(tree).open()["val"]) == 2


def test_class_folders_may_lie_in_the_root_itself(tree, tmp_path, picture):
    """A class may be called train: it holds images, not classes."""
    picture(tree / "train" / "train" / "1.png")
    picture(tree / "train" / "Ägypten im März" / "ein Bild.png")
    root = tree / "train"
    source = folder(root, tmp_path / "index", splits=None)
    pools = source.open()
    assert list(pools) == ["train"]
    assert source.class_names == ["cat", "dog", "train", "Ägypten im März"]
    assert [Path(name).parts[0] for name in names(pools["train"], root)] == [
        *("cat", "cat", "dog", "dog", "train"),
        "Ägypten im März",
    ]
    age(root)
    first, second = (folder(root, tmp_path / "index", splits=None).open()["train"] for _ in range(2))
    assert same(first, second)
    assert same(second, pools["train"])
    assert pickle.loads(pickle.dumps(second)).load(0) == first.load(0)


def test_what_is_no_folder_of_classes_is_refused(tmp_path, picture, refused):
    for name in ("bare/1.png", "bare/2.png", "untrained/test/cat/1.png", "untrained/val/cat/1.png"):
        picture(tmp_path / name)
    (tmp_path / "empty").mkdir()
    refused(plain(tmp_path / "nowhere"), "data.source.root: there is no folder", tmp_path / "nowhere")
    refused(plain(tmp_path / "empty"), "holds no class folder", tmp_path / "empty" / "<class>")
    refused(plain(tmp_path / "bare"), "holds 2 images and no class folder", tmp_path / "bare" / "<class>")
    refused(plain(tmp_path / "untrained"), "test/ and val/, but no train/")


# -- the index


def age(root):
    """Let every folder have changed long ago: younger ones may change again without another time."""
    long_ago = time.time_ns() - 10_000_000_000
    for parent, _, _ in os.walk(root):
        os.utime(parent, ns=(long_ago, long_ago))


@pytest.fixture
def listed(monkeypatch):
    """Every folder that is listed."""
    seen, scan = [], folder_index.scan
    monkeypatch.setattr(folder_index, "scan", lambda *at: seen.append(os.fsdecode(at[1])) or scan(*at))
    return seen


def same(a, b):
    return (a.fingerprint, a.targets.tolist(), names(a, "/")) == (b.fingerprint, b.targets.tolist(), names(b, "/"))


def test_a_second_start_reads_the_index_and_finds_the_same(tree, tmp_path, picture, listed):
    picture(tree / "val" / "dog" / "1.png")
    age(tree)
    first = folder(tree, tmp_path / "index")
    pools = first.open()
    assert listed == ["train/cat", "train/dog", "val/dog"]
    second = folder(tree, tmp_path / "index")
    again = second.open()
    assert len(listed) == 3
    assert second.class_names == first.class_names
    plain = folder(tree).open()
    assert all(same(pools[split], again[split]) and same(pools[split], plain[split]) for split in ("train", "val"))


def test_prepare_builds_the_index(tree, tmp_path, listed):
    age(tree)
    source = folder(tree, tmp_path / "index")
    source.prepare()
    del listed[:]
    source.open()
    assert not listed


@pytest.mark.parametrize(
    "change",
    [
        lambda train, picture: picture(train / "dog" / "3.png"),
        lambda train, picture: picture(train / "cat" / "a" / "deep" / "3.png"),
        lambda train, picture: (train / "dog" / "2.png").unlink(),
        lambda train, picture: (train / "dog" / "2.png").rename(train / "dog" / "3.png"),
        lambda train, picture: (train / "dog" / "2.png").rename(train / "cat" / "2.png"),
        lambda train, picture: (train / "dog").rename(train / "wolf"),
        lambda train, picture: picture(train / "emu" / "1.png"),
        lambda train, picture: picture(train.parent / "val" / "cat" / "1.png"),
    ],
)
def test_an_index_of_other_names_is_not_used(tree, tmp_path, picture, change):
    age(tree)
    old = folder(tree, tmp_path / "index").open()
    change(tree / "train", picture)
    new, plain = folder(tree, tmp_path / "index").open(), folder(tree).open()
    assert list(new) == list(plain)
    assert all(same(new[split], plain[split]) for split in plain)
    assert list(new) != list(old) or not same(new["train"], old["train"])


def test_a_file_rewritten_in_place_is_noticed_once_the_index_is_deleted(tree, tmp_path):
    age(tree)
    old = folder(tree, tmp_path / "index").open()["train"].fingerprint
    (tree / "train" / "dog" / "2.png").write_bytes(b"longer or shorter")
    assert folder(tree, tmp_path / "index").open()["train"].fingerprint == old
    next((tmp_path / "index").glob("*.index")).unlink()
    assert folder(tree, tmp_path / "index").open()["train"].fingerprint != old


def test_an_index_of_folders_that_have_just_changed_is_not_kept(tree, tmp_path):
    folder(tree, tmp_path / "index").open()
    assert not list(tmp_path.glob("index/*"))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other"])
def test_a_damaged_index_is_built_again(tree, tmp_path, listed, damage):
    age(tree)
    plain = folder(tree, tmp_path / "index").open()["train"]
    path = next((tmp_path / "index").glob("*.index"))
    content = bytearray(path.read_bytes())
    for position in range(16, len(content), 37) if damage == "flipped" else [0]:
        broken = content.copy()
        broken[position] ^= 1
        path.unlink()
        path.write_bytes({"empty": b"", "cut": content[:-9], "flipped": broken, "other": b"text" * 99}[damage])
        del listed[:]
        pool = folder(tree, tmp_path / "index").open()["train"]
        assert same(pool, plain)
        if damage != "flipped":  # a byte between two arrays may change
            assert listed
    assert path.read_bytes() == content or damage == "flipped"


def test_other_splits_and_another_root_have_another_index(tree, tmp_path, picture):
    picture(tree / "val" / "dog" / "1.png")
    age(tree)
    index = tmp_path / "index"
    assert list(folder(tree, index).open()) == ["train", "val"]
    assert list(folder(tree, index, {"train": "train", "test": "val"}).open()) == ["train", "test"]
    (tmp_path / "other").mkdir()
    tree.rename(tmp_path / "other" / "tree")
    pool = folder(tmp_path / "other" / "tree", index).open()["train"]
    assert pool.name(0).startswith(str(tmp_path / "other"))
    assert len(list(index.iterdir())) == 3


def test_an_index_that_cannot_be_written_is_done_without(tree, tmp_path):
    age(tree)
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match=r"data\.source\.index_root: cannot write"):
        pools = folder(tree, tmp_path / "file").open()
    assert len(pools["train"]) == 4


def test_a_worker_is_told_where_the_index_lies(tree, tmp_path):
    age(tree)
    pool = folder(tree, tmp_path / "index").open()["train"]
    pickled = pickle.dumps(pool)
    assert len(pickled) < 1000
    assert same(pickle.loads(pickled), pool)
    (tree / "train" / "dog" / "2.png").unlink()
    age(tree / "train" / "cat")
    os.utime(tree / "train" / "dog", ns=(1, 1))
    folder(tree, tmp_path / "index").open()
    with pytest.raises(DataError, match="replaced after this run began"):
        pickle.loads(pickled)
    next((tmp_path / "index").glob("*.index")).unlink()
    with pytest.raises(DataError, match="was removed after this run began"):
        pickle.loads(pickled)


@pytest.mark.slow
def test_a_million_images_are_listed_once(tmp_path, monkeypatch):
    """A thousand classes of a thousand entries; the classes are links to one folder, of links to one file."""
    (tmp_path / "class").mkdir()
    (tmp_path / "picture.png").write_bytes(b"the same for all")
    for i in range(1000):
        (tmp_path / "class" / f"{i:03d}.png").symlink_to(tmp_path / "picture.png")
    (tmp_path / "tree" / "train").mkdir(parents=True)
    for k in range(1000):
        (tmp_path / "tree" / "train" / f"{k:03d}").symlink_to(tmp_path / "class")
    age(tmp_path)
    first = folder(tmp_path / "tree", tmp_path / "index", allow_outside=True).open()["train"]
    assert len(first) == 1_000_000

    def scandir(path):
        raise AssertionError(f"{path} is listed")

    monkeypatch.setattr(os, "scandir", scandir)
    second = folder(tmp_path / "tree", tmp_path / "index", allow_outside=True).open()["train"]
    assert second.fingerprint == first.fingerprint
    assert second.name(999_999).endswith("train/999/999.png")
    assert second.targets.values[[0, 999_999]].tolist() == [0, 999]
    assert second.load(123_456) == b"the same for all"
    assert len(pickle.dumps(second)) < 1000
