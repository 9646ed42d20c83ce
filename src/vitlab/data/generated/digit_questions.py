"""Questions about handwritten digits: scenes of several of scikit-learn's digits, questions about them, and answers.

n scenes, k glyphs, B batch
"""

import hashlib
from collections.abc import Sequence
from itertools import combinations_with_replacement, product
from typing import cast

import numpy as np

from vitlab.data.generated.handwriting import BORDER, OF_A_HAND, draw_glyph, scale_number, warp_glyphs
from vitlab.data.generated.splitting import draw_fixed_numbers, is_in_split, load_split_digits
from vitlab.data.pools.pool import Pool, Source, Stored
from vitlab.data.targets import Answers
from vitlab.ranges import Count
from vitlab.seeding import draw_numbers
from vitlab.vocabulary import CharacterVocabulary

ACROSS, CELL, EMPTY = 2, 16, -1  # cells in a row, pixels of a cell, and what stands in one without a digit
CELLS = ACROSS * ACROSS
KINDS = ("how_many", "largest", "smallest", "sum", "beside")
STEPS = {"left of": (0, -1), "right of": (0, 1), "above": (-1, 0), "below": (1, 0)}  # rows and columns away
CHARACTERS = " ?0123456789abefghilmnorstuvwy"
TOLD = 4 + 2 * CELLS  # numbers that decide what a scene holds and what is asked
OF_A_GLYPH = 7  # numbers that decide how it is drawn


class DigitQuestions(Source):
    """Scenes of two to four digits in 2x2 cells, a question about each, and its answer: how many there are, the largest
    or smallest, their sum, or which one stands left of, right of, above or below another. In training there are scenes
    of one digit as well, without which learning takes several times as long to begin.

    A composition is which digits a scene holds, in any order. A scene for training shows the same composition and asks
    the same in each epoch, in other pictures and another hand. Half of the scenes of val and test show compositions
    that training has ("seen"), half show compositions that no other split has ("held_out"), in pictures of no other
    split.
    """

    in_chans = 1

    def __init__(self, *, num_scenes: Count, num_evaluated: Count):
        self.counts = {"train": num_scenes, "val": num_evaluated, "test": num_evaluated}

    def open(self) -> dict[str, Pool]:
        vocabulary = CharacterVocabulary(CHARACTERS)
        pools: dict[str, Pool] = {}
        for split, digits in load_split_digits():
            glyphs = [np.pad(pictures, BORDER) for pictures in digits]
            scenes, held_out, numbers = self.scenes(split)
            asked = [question(scene, row) for scene, row in zip(scenes, numbers, strict=True)]
            kinds, questions, answers = zip(*asked, strict=True)
            groups = {"seen": ~held_out, "held_out": held_out}
            groups |= {kind: np.array([own == kind for own in kinds]) for kind in KINDS}
            targets = Answers(answers, vocabulary, questions, groups)
            pools[split] = QuestionPool(scenes, targets, glyphs, varied=split == "train")
        return pools

    def scenes(self, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lay out the scenes of a split, always the same: the digit in each cell, row by row, or `EMPTY` (n, 4);
        whether the composition is held out (n,), and the random numbers that choose the question (n, 2)."""
        n = self.counts[split]
        which, size, *_ = (numbers := draw_fixed_numbers("digit questions", split, n, TOLD)).T
        held_out = (np.arange(n) % 2 == 1) & (split != "train")
        least = 1 if split == "train" else 2
        sizes = least + (size * (CELLS - least + 1)).astype(int)
        scenes = np.full((n, CELLS), EMPTY)
        for own, count in product(dict.fromkeys(("train", split)), range(least, CELLS + 1)):
            rows = np.flatnonzero((sizes == count) & (held_out == (own != "train")))
            some = compositions(own, count)
            digits = some[(which[rows] * len(some)).astype(int)]
            order = numbers[rows, 4 : 4 + count].argsort(axis=1)
            cells = numbers[rows, 4 + CELLS :].argsort(axis=1)[:, :count]
            scenes[rows[:, None], cells] = np.take_along_axis(digits, order, axis=1)
        return scenes, held_out, numbers[:, 2:4]


def compositions(split: str, count: int) -> np.ndarray:
    """List all sets of so many digits, with repetitions, that belong to a split; sets of one digit are for training.
    -> (compositions, count)"""
    every = np.array(list(combinations_with_replacement(range(10), count)))
    if count == 1:
        return every
    return cast(np.ndarray, every[is_in_split(split, "digit compositions", every)])


def question(scene: np.ndarray, numbers: np.ndarray) -> tuple[str, str, str]:
    """Ask something about the cells of a scene (4,), by two numbers: its kind, the question, and the answer."""
    digits = scene[scene != EMPTY].tolist()
    beside = neighbours(scene)
    kind = KINDS[int(numbers[0] * (len(KINDS) if beside else len(KINDS) - 1))]
    if kind == "beside":
        return kind, *beside[int(numbers[1] * len(beside))]
    answers = {"how_many": len(digits), "largest": max(digits), "smallest": min(digits), "sum": sum(digits)}
    return kind, f"{kind.replace('_', ' ')}?", str(answers[kind])


def neighbours(scene: np.ndarray) -> list[tuple[str, str]]:
    """List all questions about a neighbour of a digit that stands in the scene once, with their answers."""
    grid = scene.reshape(ACROSS, ACROSS)
    found = []
    for row, column in np.argwhere(grid != EMPTY).tolist():
        digit = grid[row, column]
        for place, (down, right) in STEPS.items():
            other = (row + down, column + right)
            if min(other) >= 0 and max(other) < ACROSS and grid[other] != EMPTY and (scene == digit).sum() == 1:
                found.append((f"{place} the {digit}?", str(grid[other])))
    return found


class QuestionPool(Pool):
    """Scenes (n, 4) of glyphs, drawn when loaded; `varied`: anew in every epoch, each glyph in another hand."""

    def __init__(self, scenes: np.ndarray, targets: Answers, glyphs: Sequence[np.ndarray], *, varied: bool):
        digest = hashlib.blake2b(targets.tobytes() + scenes.tobytes(), digest_size=8)
        for pictures in glyphs:
            digest.update(pictures.tobytes())
        super().__init__(targets, digest.hexdigest())
        self.scenes, self.glyphs = scenes, glyphs
        self.draws = CELLS * (OF_A_GLYPH + OF_A_HAND) if varied else 0

    def load(self, i: int) -> np.ndarray:
        numbers = draw_numbers("fixed question", np.array([[i]]), CELLS * OF_A_GLYPH)
        return cast(np.ndarray, self.draw_scenes([i], numbers.reshape(1, CELLS, -1), None)[0])

    def compose(self, indices: Sequence[int], numbers: np.ndarray) -> list[Stored | Exception]:
        numbers = numbers.reshape(len(indices), CELLS, -1)
        return list(self.draw_scenes(indices, numbers[..., :OF_A_GLYPH], numbers[..., OF_A_GLYPH:]))

    def draw_scenes(self, indices: Sequence[int], numbers: np.ndarray, hands: np.ndarray | None) -> np.ndarray:
        """Draw scenes by the random numbers of each cell (B, 4, 7), in other hands if `hands` are given.
        -> (B, H, W) uint8"""
        scenes = self.scenes[list(indices)]
        filled = np.nonzero(scenes != EMPTY)
        own = [self.glyphs[k] for k in scenes[filled]]
        glyphs = np.stack(
            [some[int(which * len(some))] for some, which in zip(own, numbers[filled][:, 0], strict=True)]
        )
        if hands is not None:
            glyphs = warp_glyphs(glyphs, hands[filled])
        images: np.ndarray = np.zeros((len(scenes), ACROSS * CELL, ACROSS * CELL), np.uint8)
        for glyph, which, cell, row in zip(glyphs, *filled, numbers[filled].tolist(), strict=True):
            _, wide, high, lean, angle, x, y = row
            size = scale_number(wide, 1.3, 1.9), scale_number(high, 1.5, 2.0)  # of 8 pixels, in a cell of 16
            turned = scale_number(lean, -0.4, 0.4), scale_number(angle, -0.15, 0.15)
            middle = CELL / 2 + scale_number(x, -1.5, 1.5), CELL / 2 + scale_number(y, -1.0, 1.0)
            top, left = CELL * (cell // ACROSS), CELL * (cell % ACROSS)
            images[which, top : top + CELL, left : left + CELL] = draw_glyph(
                glyph, *size, *turned, *middle, (CELL, CELL)
            )
        return images

    def name(self, i: int) -> str:
        return f"scene {i}"
