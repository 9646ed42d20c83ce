"""Names in one block, and arrays in one file: both give back what was put in."""

import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitlab.data.pools.packed_names import PackedNames
from vitlab.data.sources.array_file import read_arrays, write_arrays

NAMES = st.lists(st.binary().filter(lambda name: b"\0" not in name))


@given(names=NAMES, more=NAMES)
def test_names_come_back(names, more):
    packed = PackedNames.pack(names)
    assert [os.fsencode(name) for name in packed] == names
    assert list(PackedNames.join([packed, PackedNames.pack(more)])) == list(map(os.fsdecode, names + more))
    assert list(pickle.loads(pickle.dumps(packed))) == list(packed)
    assert packed[1:-1] == list(packed)[1:-1]


def test_places_outside_are_refused():
    packed = PackedNames.pack(["a", "b"])
    assert packed[-1] == "b"
    for place in (2, -3):
        with pytest.raises(IndexError):
            packed[place]


def test_a_million_names_take_little_more_than_their_bytes():
    packed = PackedNames.pack(f"{i:06d}" for i in range(1_000_000))
    assert packed.block.nbytes + packed.offsets.nbytes < 15_000_000
    assert packed[123_456] == "123456"


ARRAYS = {
    "bytes": np.arange(7, dtype=np.uint8),
    "empty": np.zeros((0, 3), dtype=np.int64),
    "numbers": np.arange(12.0).reshape(3, 4),
    "strided": np.arange(10)[::2],
}


def test_arrays_come_back_mapped_and_aligned(tmp_path):
    write_arrays(tmp_path / "new" / "file", {"names": ["ü", "\udcff"]}, ARRAYS)
    about, arrays = read_arrays(tmp_path / "new" / "file")
    assert about == {"names": ["ü", "\udcff"]}
    for name, array in ARRAYS.items():
        assert np.array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
        assert not arrays[name].flags.writeable
        assert arrays[name].flags.aligned
    assert os.listdir(tmp_path / "new") == ["file"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    write_arrays(tmp_path / "file", {}, ARRAYS)
    old = (tmp_path / "file").read_bytes()

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_arrays(tmp_path / "file", {"new": 1}, ARRAYS)
    assert (tmp_path / "file").read_bytes() == old
    assert os.listdir(tmp_path) == ["file"]


def test_damage_is_noticed(tmp_path):
    write_arrays(tmp_path / "file", {"key": 1}, ARRAYS)
    content = (tmp_path / "file").read_bytes()
    quiet = 0
    for position in range(len(content)):
        broken = bytearray(content)
        broken[position] ^= 0x10
        (tmp_path / "broken").write_bytes(broken)
        try:
            about, arrays = read_arrays(tmp_path / "broken")
        except ValueError:
            continue
        quiet += 1
        assert about == {"key": 1}
        assert all(np.array_equal(arrays[name], array) for name, array in ARRAYS.items())
    assert quiet < 64 * 4  # the gaps between the arrays
    for length in (0, 5, 30, len(content) - 1):
        (tmp_path / "broken").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"file of arrays|damaged"):
            read_arrays(tmp_path / "broken")
