"""Questions about digits: answers are right, compositions of the test are held out, scenes show what is told."""

import re
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from vitlab.data import DigitQuestions, Digits
from vitlab.data.pools.splits import divide
from vitlab.seeding import draw_numbers

STEPS = {"left": (0, -1), "right": (0, 1), "above": (-1, 0), "below": (1, 0)}


@pytest.fixture(scope="module")
def pools():
    return DigitQuestions(num_scenes=3000, num_evaluated=400).open()


def answer(scene, question):
    """By the words of the question alone."""
    digits = [int(k) for k in scene if k >= 0]
    if question in ("how many?", "largest?", "smallest?", "sum?"):
        return {"how many?": len, "largest?": max, "smallest?": min, "sum?": sum}[question](digits)
    place, digit = re.fullmatch(r"(left|right|above|below)(?: of)? the (\d)\?", question).groups()
    (cell,) = [i for i, k in enumerate(scene) if k == int(digit)]
    down, right = STEPS[place]
    return int(scene[2 * (cell // 2 + down) + cell % 2 + right])


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_answers_are_right(pools, split):
    pool = pools[split]
    for scene, question, said in zip(pool.scenes, pool.targets.questions.values, pool.targets.values, strict=True):
        assert said == str(answer(scene, question)), (scene, question)


def test_kinds_and_numbers_of_digits_are_about_as_frequent(pools):
    shares = {name: own.mean() for name, own in pools["train"].targets.groups.items()}
    assert shares["seen"] == 1
    assert min(shares[kind] for kind in ("how_many", "largest", "smallest", "sum", "beside")) > 0.1
    counts = Counter((pools["train"].scenes >= 0).sum(axis=1).tolist())
    assert set(counts) == {1, 2, 3, 4}
    assert min(counts.values()) > 650
    assert (pools["train"].scenes >= 0).mean(axis=0).min() > 0.55  # any cell
    assert set((pools["test"].scenes >= 0).sum(axis=1).tolist()) == {2, 3, 4}


def test_half_of_an_evaluation_is_held_out(pools):
    def kinds(split, group):
        return {tuple(sorted(scene)) for scene in pools[split].scenes[pools[split].targets.groups[group]]}

    for split in ("val", "test"):
        assert pools[split].targets.groups["held_out"].mean() == 0.5
        assert not kinds(split, "held_out") & kinds("train", "seen")
        assert kinds(split, "seen") & kinds("train", "seen")
    assert not kinds("val", "held_out") & kinds("test", "held_out")


def test_a_split_has_only_its_own_pictures(pools):
    for split, (digits, places) in divide(Digits().open(), 0.1, 0.2).items():
        classes = digits.targets.values[places]
        for k in range(10):
            assert np.array_equal(pools[split].glyphs[k][:, 1:-1, 1:-1], digits.pixels[places[classes == k]])


def test_a_scene_shows_digits_where_it_is_told(pools):
    pool = pools["train"]
    numbers = draw_numbers("some", np.arange(50)[:, None], pool.draws)
    for i, image in enumerate(pool.compose(range(50), numbers)):
        assert image.shape == (32, 32)
        cells = image.reshape(2, 16, 2, 16).swapaxes(1, 2).reshape(4, 256)
        assert np.array_equal(cells.max(axis=1) > 0, pool.scenes[i] >= 0)
    assert not np.array_equal(pool.compose([3], numbers[:1])[0], pool.compose([3], numbers[1:2])[0])
    assert np.array_equal(pool.load(3), pool.load(3))
    together, alone = pool.compose(range(4), numbers[:4]), [pool.compose([i], numbers[i : i + 1])[0] for i in range(4)]
    assert np.array_equal(together, alone)


def test_it_is_always_the_same(pools):
    again = DigitQuestions(num_scenes=3000, num_evaluated=400).open()
    assert [pool.fingerprint for pool in again.values()] == [pool.fingerprint for pool in pools.values()]
    assert Image.fromarray(again["test"].load(0)).size == (32, 32)
    assert again["test"].name(1) == "scene 1"
    assert again["test"].targets.get_question(1) == again["test"].targets.questions.values[1]
