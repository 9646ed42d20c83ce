"""One class an image, or several: counted, told and put into batches alike."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitlab.data.targets import OneClass, SeveralClasses, multi_hot

ONE = OneClass(np.array([2, 0, 2, 3]))
SEVERAL = multi_hot([[2, 0], [], [3], [0]], 5)


@given(st.lists(st.lists(st.integers(0, 6))))
def test_a_multi_hot_row_tells_its_classes(labels):
    hot = multi_hot(labels, 7)
    assert hot.values.shape == (len(labels), 7)
    assert hot.values.dtype == np.uint8
    assert [hot.get_classes(i) for i in range(len(hot))] == [sorted(set(classes)) for classes in labels]


def test_counts_and_first_images():
    assert ONE.counts(5).tolist() == [1, 0, 2, 1, 0]
    assert SEVERAL.counts(5).tolist() == [2, 0, 1, 1, 0]
    assert SeveralClasses(np.ones((300, 2), np.uint8)).counts(2).tolist() == [300, 300]  # more than a byte counts
    assert [a.tolist() for a in ONE.find_first_places()] == [[0, 2, 3], [1, 0, 3]]
    assert [a.tolist() for a in SEVERAL.find_first_places()] == [[0, 2, 3], [0, 0, 2]]


def test_what_a_reader_is_told():
    assert [ONE.words(i, list("abcde")) for i in range(2)] == ["c", "a"]
    assert [SEVERAL.words(i, list("abcde")) for i in range(3)] == ["a, c", "none", "d"]


@pytest.mark.parametrize("kind", [np.uint8, bool])
def test_a_batch_of_several_classes_is_float(kind):
    several = SeveralClasses(SEVERAL.values.astype(kind))
    assert several.collate().dtype == torch.float32
    assert torch.equal(several.collate(), torch.from_numpy(SEVERAL.values).float())
    assert torch.equal(several.shares(several.collate(), 5), several.collate())


def test_a_batch_of_single_classes_is_of_integers_and_mixes_as_one_hot():
    assert ONE.collate().dtype == torch.int64
    assert ONE.collate().tolist() == ONE.tolist() == [2, 0, 2, 3]
    assert ONE[[]].collate().shape == (0,)
    assert torch.equal(ONE.shares(ONE.collate(), 5), torch.eye(5)[[2, 0, 2, 3]])
