"""Scenes composed of pictures with one class each, and captions that say what is there, how often and where.

n pictures or scenes, B batch, K classes, H W height and width of a picture, C channels
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from vitlab.data.generated.splitting import TEST, VAL, draw_fixed_numbers, is_in_split
from vitlab.data.pools.pool import Pool, Source, Stored
from vitlab.data.pools.splits import divide
from vitlab.data.targets import Captions, OneClass
from vitlab.errors import ConfigError, DataError
from vitlab.ranges import Count, Share
from vitlab.seeding import draw_numbers
from vitlab.vocabulary import WordVocabulary

COUNTS = {2: "two times", 3: "three times", 4: "four times"}
CELLS = tuple(product(range(2), range(2)))  # rows and columns of a scene
ROWS, COLUMNS = (((0, 1), (2, 3)), ((0, 2), (1, 3)))  # cells beside each other, and one above the other
RELATIONS = {"left of": (ROWS, "right of"), "above": (COLUMNS, "below")}  # and what the second is to the first
DRAWN = 1 + len(CELLS)  # numbers that decide how a scene looks: where, and which pictures
SAID = 4  # numbers that decide what a sample shows and its caption


class Composition(NamedTuple):
    """Several pictures: their classes, the cells that they may take, and all captions, in which the names of the
    classes are {0} and {1}."""

    classes: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]
    phrases: tuple[str, ...]


@dataclass(kw_only=True)
class Scenes(Source):
    """Pictures of a `source` that has one class each, alone, and scenes of several of them: two beside or above each
    other, or one class two to four times.

    Each class has one `words` or more, the first of which is its name. The caption of a single picture is one of the
    `templates`, in which {} is its word. For training there are `num_scenes` samples, of which a share `alone` shows
    one picture; what a sample shows and its caption stay, its pictures and places are drawn anew in each epoch. val and
    test show each of their pictures alone, and `num_evaluated` scenes; no two splits share a composition.
    Raises ConfigError for values out of range, DataError for a source of other targets or number of classes.
    """

    source: Source
    words: list[list[str]]
    templates: list[str]
    num_scenes: Count
    num_evaluated: Count
    alone: Share

    def __post_init__(self) -> None:
        if not self.templates or any(template.count("{}") != 1 for template in self.templates):
            raise ConfigError(f"data.source.templates {self.templates} are not texts with one {{}} each")
        if len(self.words) < 2 or not all(self.words):
            raise ConfigError(
                f"data.source.words {self.words} must name at least two classes, each with at least one word"
            )
        every = [word for names in self.words for word in names]
        if twice := next((word for word in every if every.count(word) > 1), None):
            raise ConfigError(f"data.source.words name '{twice}' more than once; a word belongs to one class")
        self.class_names = [names[0] for names in self.words]
        self.in_chans = self.source.in_chans

    def prepare(self) -> None:
        self.source.prepare()

    def open(self) -> dict[str, Pool]:
        parts = divide(self.source.open(), VAL, TEST)
        vocabulary, kinds = self.vocabulary(), compositions(len(self.words))
        pools: dict[str, Pool] = {}
        for split, (pool, places) in parts.items():
            if not isinstance(pool.targets, OneClass) or pool.pixels is None or len(pool.pixels.shape) < 3:
                raise DataError("scenes need small images in memory with one class each, such as data=digits")
            if len(self.source.class_names) != len(self.words):
                raise ConfigError(
                    f"data.source.words name {len(self.words)} classes, but the pictures have "
                    f"{len(self.source.class_names)}"
                )
            pictures, classes = pool.pixels[places], pool.targets.values[places]
            shown = self.samples(split, classes, find_compositions(split, kinds))
            texts = [self.caption(kind, kinds, row) for kind, row in shown]
            meanings = np.array([kind for kind, _ in shown], dtype=np.int64)
            captions = Captions(texts, vocabulary, meanings)
            pools[split] = ScenePool(captions, pictures, classes, kinds, varied=split == "train")
        return pools

    def samples(self, split: str, classes: np.ndarray, own: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Choose what each sample of a split shows: a class, or K and more for a composition, and the numbers that its
        caption is chosen by, always the same. `own` are the compositions of the split."""
        alone = 0 if split == "train" else len(classes)
        count = self.num_scenes if split == "train" else alone + self.num_evaluated
        numbers = draw_fixed_numbers("scenes", split, count, SAID)
        K = len(self.words)
        kinds = K + own[(numbers[:, 1] * len(own)).astype(int)]
        kinds[:alone] = classes[:alone]
        if not alone:
            kinds = np.where(numbers[:, 0] < self.alone, (numbers[:, 1] * K).astype(int), kinds)
        return list(zip(kinds.tolist(), numbers[:, 2:], strict=True))

    def caption(self, kind: int, kinds: Sequence[Composition], numbers: np.ndarray) -> str:
        """Choose one of the captions of a class or a composition."""
        every = self.captions(kind, kinds)
        return every[int(numbers[0] * len(every))]

    def captions(self, kind: int, kinds: Sequence[Composition]) -> list[str]:
        """Return all captions of a class or a composition."""
        if kind < len(self.words):
            return [fill_template(template, word) for template in self.templates for word in self.words[kind]]
        own = kinds[kind - len(self.words)]
        names = [[add_article(word) for word in self.words[k]] for k in (own.classes[0], own.classes[-1])]
        return list(dict.fromkeys(phrase.format(*pair) for phrase in own.phrases for pair in product(*names)))

    def vocabulary(self) -> WordVocabulary:
        """Number the words of all captions, in the order of the alphabet."""
        texts = [fill_template(template, word) for template in self.templates for words in self.words for word in words]
        texts += [*RELATIONS, *(other for _, other in RELATIONS.values()), *COUNTS.values(), "a an"]
        return WordVocabulary(sorted(set(" ".join(texts).split())))


def compositions(num_classes: int) -> list[Composition]:
    """List all compositions: each two different classes beside and above each other, each class two to four times."""
    found: list[Composition] = []
    for (place, (cells, other)), pair in product(RELATIONS.items(), product(range(num_classes), repeat=2)):
        if pair[0] != pair[1]:
            found.append(Composition(pair, cells, (f"{{0}} {place} {{1}}", f"{{1}} {other} {{0}}")))
    for (count, words), k in product(COUNTS.items(), range(num_classes)):
        some = tuple(combinations(range(len(CELLS)), count))
        found.append(Composition((k,) * count, some, (f"{words} {{0}}",)))
    return found


def find_compositions(split: str, kinds: Sequence[Composition]) -> np.ndarray:
    """Return the places of the compositions that belong to a split. Raises DataError for none."""
    own: np.ndarray = np.flatnonzero(is_in_split(split, "compositions", np.arange(len(kinds))[:, None]))
    if not len(own):
        raise DataError(
            f"no composition of so few classes is left for the {split} split; name more in data.source.words"
        )
    return own


class ScenePool(Pool):
    """Scenes of pictures (n, H, W) or (n, H, W, C), composed when they are loaded; `varied`: anew in every epoch.
    Otherwise the first samples show each picture alone."""

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
            picture: np.ndarray = self.pictures[i]
            return picture
        return self.scene(i, draw_numbers("fixed scene", np.array([[i]]), DRAWN)[0])

    def compose(self, indices: Sequence[int], numbers: np.ndarray) -> list[Stored | Exception]:
        return [self.scene(i, row) for i, row in zip(indices, numbers, strict=True)]

    def scene(self, i: int, numbers: np.ndarray) -> np.ndarray:
        """Compose one picture (H, W), or a scene of several (2·H, 2·W), from random numbers (draws,)."""
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
        picture: np.ndarray = self.pictures[self.members[k][int(number * len(self.members[k]))]]
        return picture

    def name(self, i: int) -> str:
        return f"scene {i}"


def fill_template(template: str, word: str) -> str:
    """Put a word into a template; "a" before a vowel is "an"."""
    return template.replace("a {}", add_article(word)).replace("{}", word)


def add_article(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" and not word.startswith("one") else f"a {word}"
