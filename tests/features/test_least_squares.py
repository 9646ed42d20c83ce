"""Few-shot regression, against closed solutions of torch and scikit-learn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from vitlab.features import choose_shots, ridge
from vitlab.features.least_squares import BIAS, SPREAD

K = 4
L2 = [2.0**-8, 1.0, 2.0**10]
SHAPES = {"more images than features": (60, 12), "fewer": (20, 50), "as many, with the bias": (13, 12)}


def problem(n, d, m=30):
    """Features of unlike scales and means, and classes that depend on them."""
    generator = torch.Generator().manual_seed(n * d)
    scale, mean = torch.rand(d, generator=generator) * 5 + 0.1, torch.randn(d, generator=generator) * 3
    raw = torch.randn(n + m, d, generator=generator)
    target = (raw @ torch.randn(d, K, generator=generator)).argmax(dim=1)
    values = raw * scale + mean
    return values[:n], target[:n], values[n:]


def by_hand(values, mean_of):
    """Whitened by the known images, with the constant column, in float64."""
    x, known = values.double(), mean_of.double()
    x = (x - known.mean(0)) / (known.var(0, unbiased=False).sqrt() + SPREAD)
    return torch.cat([x, torch.full((len(x), 1), BIAS, dtype=torch.float64)], dim=1)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_weights_are_the_least_squares_of_torch_and_scikit_learn(shape):
    values, target, unknown = problem(*shape)
    found = ridge(values, target, num_classes=K, l2=L2)
    x = by_hand(values, values)
    y = torch.full((len(x), K), -1.0, dtype=torch.float64)
    y[range(len(x)), target] = 1.0
    for weights, l2, classes in zip(found.weights, L2, found.classes(unknown), strict=True):
        # minimising |XW - Y|² + l2·|W|² is plain least squares with √l2·I below X, and 0 below Y
        d = x.shape[1]
        below = torch.cat([x, l2**0.5 * torch.eye(d, dtype=torch.float64)])
        torchs = torch.linalg.lstsq(below, torch.cat([y, torch.zeros(d, K, dtype=torch.float64)]), driver="gelsd")
        torch.testing.assert_close(weights, torchs.solution, rtol=1e-6, atol=1e-8)
        sklearns = Ridge(alpha=l2, fit_intercept=False, solver="svd").fit(x.numpy(), y.numpy())
        torch.testing.assert_close(weights, torch.from_numpy(sklearns.coef_.T), rtol=1e-6, atol=1e-8)
        assert torch.equal(classes, (by_hand(unknown, values) @ weights).argmax(dim=1))


def test_the_scale_of_a_feature_does_not_count_and_a_dead_one_does_no_harm():
    values, target, unknown = problem(60, 12)
    plain = ridge(values, target, num_classes=K, l2=L2).classes(unknown)
    scale = torch.linspace(0.5, 50, 12)
    assert torch.equal(ridge(values * scale + 7, target, num_classes=K, l2=L2).classes(unknown * scale + 7), plain)
    dead = [torch.cat([v, torch.full((len(v), 1), 3.3)], dim=1) for v in (values, unknown)]
    assert torch.equal(ridge(dead[0], target, num_classes=K, l2=L2).classes(dead[1]), plain)


def test_one_image_of_each_class_is_enough():
    values, target = torch.eye(K)[:, [1, 0, 3, 2]] * 2, torch.arange(K)
    assert torch.equal(ridge(values, target, num_classes=K, l2=[1.0]).classes(values)[0], target)


@pytest.mark.parametrize("l2", [[], [0.0], [1.0, -1.0]], ids=str)
def test_a_strength_that_is_not_above_zero_is_refused(l2):
    with pytest.raises(ValueError, match="above 0"):
        ridge(*problem(5, 3)[:2], num_classes=K, l2=l2)


@settings(deadline=None, max_examples=50)
@given(target=st.lists(st.integers(0, 5), min_size=1, max_size=60), shots=st.integers(1, 8), seed=st.integers(0, 99))
def test_each_class_gives_its_first_images_in_one_order(target, shots, seed):
    target = torch.tensor(target)
    few = choose_shots(target, shots, seed)
    assert len(set(few.tolist())) == len(few)
    expected = target.bincount(minlength=6).clamp(max=shots)
    assert torch.equal(target[few].bincount(minlength=6), expected)
    assert torch.equal(few, choose_shots(target, shots, seed))
    assert set(few.tolist()) <= set(choose_shots(target, shots + 1, seed).tolist())


def test_another_seed_takes_other_images():
    target = torch.arange(1000) % 10
    chosen = [frozenset(choose_shots(target, 5, seed).tolist()) for seed in range(5)]
    assert len(set(chosen)) == 5
    assert max(max(places) for places in chosen) > 900  # not the first ones of the split
