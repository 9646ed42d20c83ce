"""What cannot be written whole leaves the old file as it was, and nothing else."""

import os

import pytest

from vitlab.atomic_files import write_atomically, write_whole


def broken_off(path):
    with write_atomically(path) as temporary:
        temporary.write_bytes(b"half of the n")
        raise RuntimeError


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(RuntimeError):
        broken_off(path)
    assert path.read_bytes() == b"old"
    with write_atomically(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077], ids=oct)
def test_a_file_may_be_read_by_whom_the_user_lets_read_new_files(tmp_path, mask):
    before = os.umask(mask)
    try:
        with write_atomically(tmp_path / "file") as temporary:  # as safetensors does, whose file is its owner's alone
            temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
