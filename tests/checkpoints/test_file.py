"""A checkpoint is written whole or not at all, and read only when it is undamaged, ours, and data."""

import contextlib
import errno
import os
import zipfile

import pytest
import torch

from vitlab.checkpoints import file
from vitlab.checkpoints.contents import CONFIG
from vitlab.errors import CheckpointError, StorageError

CHECKPOINT = {
    "state_dict": {"model.weight": torch.arange(64.0)},
    "run": {
        "config": {**{key: {} for key in CONFIG}, "lr": 1e-3, "name": "x", "sizes": [1, 2], "none": None},
        "choices": {},
        "class_names": ["a"],
        "device_batch_size": 8,
        "fingerprint": "f",
    },
    "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0)}}}],
    "global_step": 7,
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run" / "checkpoints" / "latest.ckpt"
    path.parent.parent.mkdir()
    file.write(CHECKPOINT, path)
    return path


def same(checkpoint):
    """Whether it is CHECKPOINT, tensors bit for bit."""
    tensor = checkpoint["state_dict"].get("model.weight")
    rest = {**checkpoint, "state_dict": None}
    return torch.equal(tensor, CHECKPOINT["state_dict"]["model.weight"]) and rest == {**CHECKPOINT, "state_dict": None}


def refused(path, *words):
    with pytest.raises(CheckpointError) as caught:
        file.read(path)
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_written_is_read(path):
    assert same(file.read(path))
    assert [p.name for p in path.parent.iterdir()] == ["latest.ckpt"]


def test_a_newer_checkpoint_takes_the_place_of_the_old_one(path):
    file.write({**CHECKPOINT, "global_step": 8}, path)
    assert file.read(path)["global_step"] == 8
    assert [p.name for p in path.parent.iterdir()] == ["latest.ckpt"]


def test_the_file_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    """fsync, rename, fsync of the folder: a rename alone may outlive the contents in a loss of power."""
    calls = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, original=original: (calls.append(name), original(*a))[1])
    file.write(CHECKPOINT, tmp_path / "x.ckpt")
    assert calls == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("unexpected pos 64 vs 0")],
    ids=["OS", "torch"],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch, error):
    def half(checkpoint, target):
        target.write(b"half of it")
        raise error

    before = path.read_bytes()
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(StorageError, match=r"latest\.ckpt: .*(No space left|unexpected pos)"):
        file.write(CHECKPOINT, path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["latest.ckpt"]


def test_whatever_goes_wrong_in_a_write_leaves_no_temporary_file(path):
    with pytest.raises(Exception, match="pickle"):
        file.write({**CHECKPOINT, "callback": lambda: None}, path)
    assert [p.name for p in path.parent.iterdir()] == ["latest.ckpt"]
    assert same(file.read(path))


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"x\.ckpt"):
        file.write(CHECKPOINT, tmp_path / "file" / "x.ckpt")


class Code:
    """Unpickled by an ordinary load, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path):
    torch.save({**CHECKPOINT, "run": Code(str(tmp_path / "proof"))}, tmp_path / "evil.ckpt")
    refused(tmp_path / "evil.ckpt", "plain types")
    assert not (tmp_path / "proof").exists()
    torch.load(tmp_path / "evil.ckpt", weights_only=False)
    assert (tmp_path / "proof").exists()  # it would have been run


def test_a_flipped_byte_in_any_record_is_found(path):
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        records = [archive.read(name) for name in archive.namelist()]
    places = [content.index(record) + len(record) // 2 for record in records if len(record) > 8]
    assert len(places) >= 2  # the pickle and the weights
    for place in places:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        refused(path)


def test_a_flipped_byte_anywhere_is_found_or_changes_nothing(path):
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :])
        with contextlib.suppress(CheckpointError):
            assert same(file.read(path))


@pytest.mark.parametrize("part", [0, 0.5, 0.99])
def test_a_truncated_file_is_refused(path, part):
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    refused(path)


def test_a_text_file_is_refused(tmp_path):
    (tmp_path / "x.ckpt").write_text("no checkpoint")
    refused(tmp_path / "x.ckpt", "is not a checkpoint")


def test_another_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.ckpt", "w") as archive:
        archive.writestr("readme.txt", "no checkpoint")
    refused(tmp_path / "x.ckpt")


@pytest.mark.parametrize("content", [{"state_dict": {}}, {"run": {}}, [1, 2], torch.zeros(1)], ids=str)
def test_somebody_elses_checkpoint_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "x.ckpt")
    refused(tmp_path / "x.ckpt", "not written by vitlab")


def test_a_missing_file_is_refused(tmp_path):
    refused(tmp_path / "x.ckpt", "there is no checkpoint")
    refused(tmp_path)  # a folder is none
