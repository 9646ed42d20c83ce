"""Lines of digits: whose digits they show, what is written of them, and what they are a function of."""

import numpy as np
import pytest

from vitlab.data import DigitLines, Digits, DigitSums
from vitlab.data.generated.digit_lines import draw_line
from vitlab.data.images.native_shape import LineCrop
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.order.sampler import Key
from vitlab.data.pools.splits import divide


def lines(kind=DigitLines, **changes):
    sizes = {"num_lines": 200, "num_evaluated": 60, "min_length": 1, "max_length": 8, "height": 16}
    return kind(**sizes | changes)


def split_of(pool, seed=0):
    crop = LineCrop(image_size=16, patch_size=8, max_width=512, interpolation="bilinear")
    places = np.arange(len(pool))
    return ImageSplit(pool, places, image_mode=None, in_chans=1, crop=crop, transform=None, seed=seed)


def test_lengths_are_those_asked_for_and_widths_follow_them():
    pool = lines(min_length=2, max_length=5).open()["train"]
    texts = pool.targets.values
    lengths = np.array([len(text) for text in texts])
    assert np.bincount(lengths, minlength=6)[2:].min() > 30
    assert set("".join(texts)) == set("0123456789")
    widths = np.array([pool.load(i).shape[1] for i in range(len(pool))])
    assert all(pool.load(i).shape[0] == 16 for i in range(5))
    assert not (widths % 8).any()
    assert np.corrcoef(lengths, widths)[0, 1] > 0.8


def test_a_line_of_a_split_has_only_its_own_digits():
    parts = divide(Digits().open(), 0.1, 0.2)
    pools = lines().open()
    for split, (digits, places) in parts.items():
        classes = digits.targets.values[places]
        for k in range(10):
            own = pools[split].glyphs[str(k)]
            assert np.array_equal(own[:, 1:-1, 1:-1], digits.pixels[places[classes == k]])


def test_lines_of_one_length_are_of_one_group():
    pool = lines().open()["train"]
    lengths = np.array([len(text) for text in pool.targets.values])
    assert max(np.bincount(pool.groups)) == 64
    order = np.argsort(pool.groups, kind="stable")
    assert (np.diff([lengths[order[k : k + 64]].min() for k in range(0, len(order), 64)]) >= 0).all()
    assert sum(len(set(lengths[pool.groups == group])) for group in set(pool.groups)) < 8 + len(set(pool.groups))


def test_training_lines_are_a_function_of_seed_epoch_and_index_and_the_others_are_fixed():
    pools = lines().open()
    train, again = split_of(pools["train"]), split_of(lines().open()["train"])
    one = train[Key(0, 7)].image
    assert one.equal(again[Key(0, 7)].image)
    assert one.equal(train.samples([Key(0, 3), Key(0, 7)])[1].image)
    others = [train[Key(1, 7)].image, split_of(pools["train"], seed=1)[Key(0, 7)].image]
    assert not any(one.shape == other.shape and one.equal(other) for other in others)
    for split in ("val", "test"):
        first = split_of(pools[split])[Key(0, 7)].image
        assert first.equal(split_of(pools[split], seed=1)[Key(3, 7)].image)
        assert first[0].numpy().tobytes() == pools[split].load(7).tobytes()


def test_a_training_line_is_laid_out_as_any_other_and_written_in_another_hand():
    pool = lines(min_length=8).open()["train"]
    numbers = np.full((2, pool.draws), 0.5)
    plain = draw_line(pool.lay_out(3, numbers[0, : pool.most]), 16).astype(int)
    numbers[1, pool.most :] = np.linspace(0.1, 0.9, pool.draws - pool.most)
    same, other = (line.astype(int) for line in pool.compose([3, 3], numbers))
    softer, bent = (np.abs(line - plain).mean() for line in (same, other))
    assert softer < 5 < 10 < bent


def test_the_fingerprint_covers_texts_digits_and_height():
    prints = [lines(**changes).open()["test"].fingerprint for changes in ({}, {"max_length": 7}, {"height": 24})]
    assert len(set(prints)) == 3
    assert prints[0] == lines(num_lines=9).open()["test"].fingerprint


@pytest.mark.parametrize("most", [1, 2, 3])
def test_sums_are_right_and_none_is_in_two_splits(most):
    source = lines(DigitSums, max_length=most, num_lines=2000, num_evaluated=500)
    seen = {}
    for split, pool in source.open().items():
        assert [text[: text.index("=") + 1] for text in pool.targets.values] == list(pool.lines)
        pairs = [text.split("=")[0].split("+") for text in pool.targets.values]
        assert all(
            f"{a}+{b}={int(a) + int(b)}" == text for (a, b), text in zip(pairs, pool.targets.values, strict=True)
        )
        assert {len(a) for a, _ in pairs} == set(range(1, most + 1)) == {len(b) for _, b in pairs}
        seen[split] = {frozenset(map(int, pair)) for pair in pairs}
        assert pool.load(0).shape[0] == 16
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["val"]
    assert not seen["val"] & seen["test"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"min_length": 9}, "min_length 9 is above max_length 8"),
        ({"kind": DigitSums, "max_length": 4}, "max_length 4 of the numbers in a sum is more than 3"),
    ],
)
def test_sizes_out_of_range_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        lines(**changes)
