"""What cannot be written whole leaves the old file as it was, and nothing else."""

import pytest

from vitlab.atomic_files import write_whole, writing_whole


def broken_off(path):
    with writing_whole(path) as temporary:
        temporary.write_bytes(b"half of the n")
        raise RuntimeError


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(RuntimeError):
        broken_off(path)
    assert path.read_bytes() == b"old"
    with writing_whole(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
