"""Columns in one file: it gives back what was put in, or says that it is damaged."""

import os

import numpy as np
import pytest

from vitlab.data.pools.columns import map_checked, write_checked

COLUMNS = {
    "bytes": np.arange(7, dtype=np.uint8),
    "empty": np.zeros((0, 3), dtype=np.int64),
    "numbers": np.arange(12.0).reshape(3, 4),
    "strided": np.arange(10)[::2],
}


def test_columns_come_back_mapped_and_aligned(tmp_path):
    write_checked(tmp_path / "new" / "file", {"names": ["ü", "\udcff"]}, COLUMNS)
    about, columns = map_checked(tmp_path / "new" / "file")
    assert about == {"names": ["ü", "\udcff"]}
    for name, column in COLUMNS.items():
        assert np.array_equal(columns[name], column)
        assert columns[name].dtype == column.dtype
        assert not columns[name].flags.writeable
        assert columns[name].flags.aligned
    assert os.listdir(tmp_path / "new") == ["file"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    write_checked(tmp_path / "file", {}, COLUMNS)
    old = (tmp_path / "file").read_bytes()

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_checked(tmp_path / "file", {"new": 1}, COLUMNS)
    assert (tmp_path / "file").read_bytes() == old
    assert os.listdir(tmp_path) == ["file"]


def test_damage_is_noticed(tmp_path):
    write_checked(tmp_path / "file", {"key": 1}, COLUMNS)
    content = (tmp_path / "file").read_bytes()
    quiet = 0
    for position in range(len(content)):
        broken = bytearray(content)
        broken[position] ^= 0x10
        (tmp_path / "broken").write_bytes(broken)
        try:
            about, columns = map_checked(tmp_path / "broken")
        except ValueError:
            continue
        quiet += 1
        assert about == {"key": 1}
        assert all(np.array_equal(columns[name], column) for name, column in COLUMNS.items())
    assert quiet < 64 * 4  # spaces at the end of the header
    for length in (0, 5, 30, len(content) - 1):
        (tmp_path / "broken").write_bytes(content[:length])
        with pytest.raises(ValueError, match="damaged"):
            map_checked(tmp_path / "broken")
