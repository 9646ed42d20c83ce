"""Scenes of pictures: what stands where is what the caption says; no split has another's pictures or compositions."""

import numpy as np
import pytest
from test_digit_lines import split_of

from vitlab.data import Digits, Scenes, Synthetic
from vitlab.data.generated.scenes import compositions, fill_template
from vitlab.data.order.sampler import Key
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass
from vitlab.errors import ConfigError, DataError

WORDS = [["red", "ruby"], ["green"], ["blue"], ["gray"], ["olive"], ["pink"], ["teal"], ["white"], ["amber"], ["tan"]]
K = len(WORDS)


class Plain:
    """Pictures of one value, 10 times its class and one."""

    in_chans, class_names = 1, [str(k) for k in range(K)]

    def prepare(self):
        """Nothing."""

    def open(self):
        classes = np.arange(200) % K
        pixels = np.repeat((10 * classes + 10).astype(np.uint8), 16).reshape(-1, 4, 4)
        return {"train": ArrayPool(pixels, OneClass(classes), "plain")}


def scenes(**changes):
    options = {"source": Plain(), "words": WORDS, "templates": ["{}", "a {}"], "num_scenes": 300, "num_evaluated": 200}
    return Scenes(**options | {"alone": 0.4} | changes)


def classes_in(image):
    """The class in each cell of a scene, -1 where there is none: rows of columns."""
    assert image.shape == (8, 8)
    cells = image.reshape(2, 4, 2, 4)
    assert (cells == cells[:, :1, :, :1]).all()
    return cells[:, 0, :, 0].astype(int) // 10 - 1


def class_of(word):
    return next(k for k, words in enumerate(WORDS) if word in words)


def shows(image, caption):
    """Whether an image is what its caption says."""
    words = [word for word in caption.split() if word not in ("a", "an")]
    if len(words) == 1:
        return image.shape == (4, 4) and image.max() // 10 - 1 == class_of(words[0])
    found = classes_in(image)
    if words[1] == "times":
        count = {"two": 2, "three": 3, "four": 4}[words[0]]
        return (found == class_of(words[2])).sum() == count and (found == -1).sum() == 4 - count
    first, second = (np.argwhere(found == class_of(word)) for word in (words[0], words[-1]))
    assert len(first) == len(second) == 1
    down, right = (second - first)[0]
    place = {"left": (0, 1), "right": (0, -1), "above": (1, 0), "below": (-1, 0)}[words[1]]
    return (down, right) == place and (found >= 0).sum() == 2


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_an_image_is_what_its_caption_says(split):
    pool = scenes().open()[split]
    assert all(shows(pool.load(i), pool.targets.values[i]) for i in range(len(pool)))
    assert len({len(caption.split()) for caption in pool.targets.values}) > 3


def test_no_composition_and_no_picture_is_in_two_splits():
    pools = scenes().open()
    several = {split: {m for m in pool.targets.meanings.tolist() if m >= K} for split, pool in pools.items()}
    assert min(map(len, several.values())) > 5
    assert sum(map(len, several.values())) == len(set.union(*several.values()))
    digits = scenes(source=Digits()).open()
    whole = {split: {picture.tobytes() for picture in pool.pictures} for split, pool in digits.items()}
    assert not whole["test"] & whole["train"]
    assert not whole["test"] & whole["val"]


def test_captions_of_one_meaning_say_the_same_and_others_do_not():
    source, kinds = scenes(), compositions(K)
    ways = [source.captions(kind, kinds) for kind in range(K + len(kinds))]
    every = [way for some in ways for way in some]
    assert len(every) == len(set(every))
    assert ways[0] == ["red", "ruby", "a red", "a ruby"]
    assert ways[K] == [
        "a red left of a green",
        "a ruby left of a green",
        "a green right of a red",
        "a green right of a ruby",
    ]
    assert "an olive above an amber" in every
    assert "four times a tan" in every
    for way in every:
        source.vocabulary().encode(way)


def test_evaluation_shows_each_picture_alone_and_training_as_many_as_it_is_told():
    pools = scenes().open()
    for split, count in {"val": 20, "test": 40}.items():
        meanings = pools[split].targets.meanings
        assert (meanings[:count] < K).all()
        assert (meanings[count:] >= K).all()
        assert len(meanings) == count + 200
    alone = (pools["train"].targets.meanings < K).mean()
    assert len(pools["train"]) == 300
    assert 0.3 < alone < 0.5


def test_a_sample_for_training_says_the_same_in_each_epoch_and_shows_it_anew():
    pool = scenes(source=Digits()).open()["train"]
    split = split_of(pool)
    epochs = [[split.load_stored([Key(epoch, i)])[0] for i in range(30)] for epoch in (0, 0, 1)]
    assert all(np.array_equal(a, b) for a, b in zip(*epochs[:2], strict=True))
    assert sum(np.array_equal(a, b) for a, b in zip(*epochs[1:], strict=True)) < 5
    batch = split_of(scenes(source=Digits()).open()["train"], seed=1).load_stored([Key(0, i) for i in range(30)])
    assert sum(np.array_equal(a, b) for a, b in zip(epochs[0], batch, strict=True)) < 5


def test_a_word_gets_its_article():
    assert fill_template("a picture of a {}", "eight") == "a picture of an eight"
    assert fill_template("a {}", "one") == "a one"
    assert fill_template("the {}", "eight") == "the eight"


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"templates": ["a digit"]}, ConfigError, r"are not texts with one \{\} each"),
        ({"words": [["one"], []]}, ConfigError, "must name at least two classes, each with at least one word"),
        ({"words": [["one"], ["one"], ["two"]]}, ConfigError, "name 'one' more than once; a word belongs to one class"),
        ({"words": WORDS[:4]}, ConfigError, "name 4 classes, but the pictures have 10"),
        (
            {"source": Synthetic(num_samples=200, num_classes=10, in_chans=1, image_size=8, noise=0.0)},
            DataError,
            "need small images in memory with one class each",
        ),
    ],
)
def test_what_cannot_be_composed_is_refused(changes, error, sentence):
    with pytest.raises(error, match=sentence):
        scenes(**changes).open()
