"""Scenes composed on the spot of pictures with one class each, and captions that say what is there, how often, where.

n pictures or scenes, B batch, K classes, H W height and width of a picture, C channels
"""

import hashlib
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from vitlab.data.pools.pool import Pool, Source, Stored
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.pools.splits import divide
from vitlab.data.targets import Captions, OneClass
from vitlab.errors import ConfigError, DataError
from vitlab.ranges import Count, Share
from vitlab.seeding import counted_numbers
from vitlab.vocabulary import WordVocabulary

VAL, TEST = 0.1, 0.2  # shares of the pictures, where the source does not divide them, and of the compositions
COUNTS = {2: "two times", 3: "three times", 4: "four times"}
CELLS = tuple(product(range(2), range(2)))  # rows and columns of a scene
ROWS, COLUMNS = (((0, 1), (2, 3)), ((0, 2), (1, 3)))  # cells beside each other, and one above the other
PLACES = {"left of": (ROWS, "right of"), "above": (COLUMNS, "below")}  # and what the second is to the first
DRAWN = 1 + len(CELLS)  # numbers that decide how a scene looks: where, and which pictures
SAID = 4  # numbers that decide what a sample shows and how it is told


class Composition(NamedTuple):
    """Several pictures: their classes, the cells that they may take, and all the ways to say it, in which the names of
    the classes are 0 and 1."""

    classes: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]
    phrases: tuple[str, ...]


class Scenes:
    """Pictures of a `source` that has one class each, alone, and scenes of several of them: two beside or above each
    other, or one class two to four times.

    Each class has one `words` or more, the first of which is its name. What stands alone is told by one of the
    `templates`, in which {} is its word. For training there are `num_scenes` samples, of which a share `alone` shows
    one picture; what a sample shows and its caption stay, its pictures and places are drawn anew in each epoch. val and
    test show each of their pictures alone, and `num_evaluated` scenes; no composition of a split is one of another's.
    Raises ConfigError for values out of range, DataError for a source of other targets or number of classes.
    """

    def __init__(
        self,
        *,
        source: Source,
        words: list[list[str]],
        templates: list[str],
        num_scenes: Count,
        num_evaluated: Count,
        alone: Share,
    ):
        if not templates or any(template.count("{}") != 1 for template in templates):
            raise ConfigError(f"data.source.templates {templates} are not texts with one {{}} each")
        if len(words) < 2 or not all(words):
            raise ConfigError(f"data.source.words {words} do not name two classes or more by a word each")
        every = [word for names in words for word in names]
        if twice := next((word for word in every if every.count(word) > 1), None):
            raise ConfigError(f"data.source.words name '{twice}' more than once; a word is of one class")
        self.source, self.words, self.templates = source, words, templates
        self.class_names = [names[0] for names in words]
        self.in_chans = source.in_chans
        self.counts = {"train": num_scenes, "val": num_evaluated, "test": num_evaluated}
        self.alone = alone

    def prepare(self) -> None:
        self.source.prepare()

    def open(self) -> dict[str, Pool]:
        parts = divide(self.source.open(), VAL, TEST)
        vocabulary, kinds = self.vocabulary(), compositions(len(self.words))
        pools: dict[str, Pool] = {}
        for split, (pool, places) in parts.items():
            if not isinstance(pool.targets, OneClass) or pool.pixels is None or len(pool.pixels.shape) < 3:
                raise DataError("scenes are composed of small images in memory with one class each, as data=digits has")
            if len(self.source.class_names) != len(self.words):
                raise ConfigError(
                    f"data.source.words name {len(self.words)} classes, and the pictures have "
                    f"{len(self.source.class_names)}"
                )
            pictures, classes = pool.pixels[places], pool.targets.values[places]
            shown = self.samples(split, classes, belong(kinds, split))
            texts = [self.told(kind, kinds, row) for kind, row in shown]
            meanings = np.array([kind for kind, _ in shown], dtype=np.int64)
            captions = Captions(texts, vocabulary, meanings)
            pools[split] = ScenePool(captions, pictures, classes, kinds, varied=split == "train")
        return pools

    def samples(self, split: str, classes: np.ndarray, own: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """What each sample of a split means, a class or K and more for a composition, and numbers that say how it is
        told, always the same. `own` compositions are the split's."""
        alone = 0 if split == "train" else len(classes)
        count = alone + self.counts[split]
        counters = np.stack([np.full(count, SPLITS.index(split)), np.arange(count)], axis=1)
        numbers = counted_numbers("scenes", counters, SAID)
        K = len(self.words)
        kinds = K + own[(numbers[:, 1] * len(own)).astype(int)]
        kinds[:alone] = classes[:alone]
        if not alone:
            kinds = np.where(numbers[:, 0] < self.alone, (numbers[:, 1] * K).astype(int), kinds)
        return list(zip(kinds.tolist(), numbers[:, 2:], strict=True))

    def told(self, kind: int, kinds: Sequence[Composition], numbers: np.ndarray) -> str:
        """Say a class or a composition in one of its ways."""
        every = self.ways(kind, kinds)
        return every[int(numbers[0] * len(every))]

    def ways(self, kind: int, kinds: Sequence[Composition]) -> list[str]:
        """Give all captions of a class or a composition."""
        if kind < len(self.words):
            return [filled(template, word) for template in self.templates for word in self.words[kind]]
        own = kinds[kind - len(self.words)]
        names = [[with_article(word) for word in self.words[k]] for k in (own.classes[0], own.classes[-1])]
        return list(dict.fromkeys(phrase.format(*pair) for phrase in own.phrases for pair in product(*names)))

    def vocabulary(self) -> WordVocabulary:
        """Number the words of all captions, in the order of the alphabet."""
        texts = [filled(template, word) for template in self.templates for words in self.words for word in words]
        texts += [*PLACES, *(other for _, other in PLACES.values()), *COUNTS.values(), "a an"]
        return WordVocabulary(sorted(set(" ".join(texts).split())))


def compositions(num_classes: int) -> list[Composition]:
    """All of them: each two different classes beside and above each other, and each class two to four times."""
    found: list[Composition] = []
    for (place, (cells, other)), pair in product(PLACES.items(), product(range(num_classes), repeat=2)):
        if pair[0] != pair[1]:
            found.append(Composition(pair, cells, (f"{{0}} {place} {{1}}", f"{{1}} {other} {{0}}")))
    for (count, words), k in product(COUNTS.items(), range(num_classes)):
        some = tuple(combinations(range(len(CELLS)), count))
        found.append(Composition((k,) * count, some, (f"{words} {{0}}",)))
    return found


def belong(kinds: Sequence[Composition], split: str) -> np.ndarray:
    """The places of the compositions that are a split's own. Raises DataError for none."""
    numbers = counted_numbers("compositions", np.arange(len(kinds))[:, None], 1)[:, 0]
    own = np.flatnonzero(np.digitize(numbers, (VAL, VAL + TEST)) == ("val", "test", "train").index(split))
    if not len(own):
        raise DataError(
            f"no composition of so few classes is left for the {split} split; name more in data.source.words"
        )
    return own


class ScenePool(Pool):
    """Scenes of pictures (n, H, W) or (n, H, W, C), composed when they are asked for; `varied`: anew in every epoch.
    What is not varied begins with each picture alone."""

    def __init__(
        self,
        captions: Captions,
        pictures: np.ndarray,
        classes: np.ndarray,
        kinds: Sequence[Composition],
        *,
        varied: bool,
    ):
        digest = hashlib.blake2b(captions.tobytes(), digest_size=8)
        digest.update(np.ascontiguousarray(pictures).data)
        super().__init__(captions, digest.hexdigest())
        self.pictures, self.kinds = pictures, kinds
        self.members = [np.flatnonzero(classes == k) for k in range(int(classes.max()) + 1)]
        self.draws = DRAWN if varied else 0

    def load(self, i: int) -> np.ndarray:
        if not self.draws and i < len(self.pictures):
            return self.pictures[i]
        return self.scene(i, counted_numbers("fixed scene", np.array([[i]]), DRAWN)[0])

    def compose(self, indices: Sequence[int], numbers: np.ndarray) -> list[Stored | Exception]:
        return [self.scene(i, row) for i, row in zip(indices, numbers, strict=True)]

    def scene(self, i: int, numbers: np.ndarray) -> np.ndarray:
        """One picture (H, W), or a scene of several (2·H, 2·W), of (draws,) numbers."""
        targets: Captions = self.targets  # type: ignore[assignment]
        meaning, (where, *which) = int(targets.meanings[i]), numbers.tolist()
        if meaning < len(self.members):
            return self.picture(meaning, which[0])
        own = self.kinds[meaning - len(self.members)]
        _, H, W = self.pictures.shape[:3]
        scene = np.zeros((2 * H, 2 * W, *self.pictures.shape[3:]), np.uint8)
        cells = own.cells[int(where * len(own.cells))]
        for k, cell, number in zip(own.classes, cells, which, strict=False):
            row, column = CELLS[cell]
            scene[row * H : (row + 1) * H, column * W : (column + 1) * W] = self.picture(k, number)
        return scene

    def picture(self, k: int, number: float) -> np.ndarray:
        return self.pictures[self.members[k][int(number * len(self.members[k]))]]

    def name(self, i: int) -> str:
        return f"scene {i}"


def filled(template: str, word: str) -> str:
    """Put a word into a template; "a" before a vowel is "an"."""
    return template.replace("a {}", with_article(word)).replace("{}", word)


def with_article(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" and not word.startswith("one") else f"a {word}"
