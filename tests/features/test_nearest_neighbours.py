"""Votes of nearest neighbours, against scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from vitlab.features import nearest_neighbours

K = 6


def clouds(n, m, d=5, seed=0):
    """Features of K overlapping clouds, with their classes, to know and to tell."""
    random = np.random.RandomState(seed)
    centres, classes = random.randn(K, d), random.randint(0, K, n + m)
    values = (centres[classes] + 1.5 * random.randn(n + m, d)).astype(np.float32)
    return *(torch.from_numpy(a) for a in (values[:n], classes[:n].astype(np.int64))), torch.from_numpy(values[n:])


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_the_votes_are_scikit_learns(temperature):
    known, target, features = clouds(300, 200)
    ours = nearest_neighbours(known, target, features, k=[1, 5, 40, 300], num_classes=K, temperature=temperature)
    for k, classes in zip([1, 5, 40, 300], ours, strict=True):
        theirs = KNeighborsClassifier(
            k, metric="cosine", algorithm="brute", weights=lambda distance: np.exp((1 - distance) / temperature)
        ).fit(known.double().numpy(), target.numpy())
        assert np.array_equal(classes.numpy(), theirs.predict(features.double().numpy())), k
    assert len({tuple(row.tolist()) for row in ours}) == 4  # each k says something of its own


@settings(deadline=None, max_examples=30)
@given(n=st.integers(5, 40), m=st.integers(1, 30), at_once=st.integers(1, 2000), seed=st.integers(0, 1000))
def test_how_much_is_held_at_once_changes_nothing(n, m, at_once, seed):
    known, target, features = clouds(n, m, seed=seed)
    options = {"k": [1, 3, 5], "num_classes": K, "temperature": 0.1}
    whole = nearest_neighbours(known, target, features, **options)
    assert whole.shape == (3, m)
    assert torch.equal(nearest_neighbours(known, target, features, at_once=at_once, **options), whole)


def test_length_does_not_count_and_a_low_temperature_leaves_the_nearest_alone():
    known, target, features = clouds(100, 80)
    options = {"num_classes": K}
    plain = nearest_neighbours(known, target, features, k=[1, 20], temperature=0.1, **options)
    longer = nearest_neighbours(known * 8, target, features / 4, k=[1, 20], temperature=0.1, **options)
    assert torch.equal(plain, longer)
    cold = nearest_neighbours(known, target, features, k=[20], temperature=1e-6, **options)  # exp(1e6) is infinite
    assert torch.equal(cold[0], plain[0])
    assert not torch.equal(plain[1], plain[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature 0.0 is not above 0"),
        ({"k": []}, r"k \[\] is not one or more"),
        ({"k": [3, 0]}, r"k \[3, 0\] is not one or more"),
        ({"k": [5, 11]}, "k 11 is more neighbours than the 10 images"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbours(*clouds(10, 2), **{"k": [5], "num_classes": K, "temperature": 0.1} | options)
