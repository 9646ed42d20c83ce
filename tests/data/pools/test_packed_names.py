"""Names in one block come back as they were put in."""

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitlab.data.pools.packed_names import PackedNames

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


def test_nobody_writes_to_names_that_workers_share():
    names = PackedNames.pack(["a.jpg", "b.jpg"])
    assert not names.block.flags.writeable
    assert not names.offsets.flags.writeable
