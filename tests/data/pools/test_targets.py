"""One class an image, or several: counted, told and put into batches alike."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitlab.data.batches.raw_batch import Sample, collate
from vitlab.data.pools.targets import as_tensor, class_counts, classes_of, first_places, multi_hot, target_at, words

CLASSES = np.array([2, 0, 2, 3])
HOT = multi_hot([[2, 0], [], [3], [0]], 5)


@given(st.lists(st.lists(st.integers(0, 6))))
def test_a_multi_hot_row_tells_its_classes(labels):
    hot = multi_hot(labels, 7)
    assert hot.shape == (len(labels), 7)
    assert hot.dtype == np.uint8
    assert [classes_of(row) for row in hot] == [sorted(set(classes)) for classes in labels]


def test_counts_and_first_images():
    assert class_counts(CLASSES, 5).tolist() == [1, 0, 2, 1, 0]
    assert class_counts(HOT, 5).tolist() == [2, 0, 1, 1, 0]
    assert class_counts(np.ones((300, 2), np.uint8), 2).tolist() == [300, 300]  # more than a byte counts
    assert [a.tolist() for a in first_places(CLASSES)] == [[0, 2, 3], [1, 0, 3]]
    assert [a.tolist() for a in first_places(HOT)] == [[0, 2, 3], [0, 0, 2]]


def test_what_a_reader_is_told():
    assert [words(target_at(CLASSES, i), list("abcde")) for i in range(2)] == ["c", "a"]
    assert [words(target_at(HOT, i), list("abcde")) for i in range(3)] == ["a, c", "none", "d"]


@pytest.mark.parametrize("kind", [np.uint8, bool])
def test_a_batch_of_several_classes_is_float(kind):
    image = torch.zeros(1, 2, 2, dtype=torch.uint8)
    batch = collate([Sample(image, row, i) for i, row in enumerate(HOT.astype(kind))])
    assert batch.target.dtype == torch.float32
    assert torch.equal(batch.target, torch.from_numpy(HOT).float())
    batch = collate([Sample(image, target_at(CLASSES, i), i) for i in range(4)])
    assert batch.target.dtype == torch.int64
    assert batch.target.tolist() == CLASSES.tolist()
    assert as_tensor([]).shape == (0,)
