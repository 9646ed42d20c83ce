"""Lines of handwritten digits, to be read: composed of scikit-learn's digits, spaced and slanted, of any length.

n lines, B batch, M characters of the longest, H W image height and width
"""

import hashlib
import math
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, NamedTuple, cast

import numpy as np

from vitlab.data.generated.handwriting import BORDER, OF_A_HAND, draw_glyph, scale_number, warp_glyphs
from vitlab.data.generated.splitting import draw_fixed_numbers, is_in_split, load_split_digits
from vitlab.data.pools.pool import Pool, Source, Stored
from vitlab.data.targets import Texts
from vitlab.ranges import Count, Range
from vitlab.seeding import draw_numbers
from vitlab.vocabulary import CharacterVocabulary

Height = Annotated[int, Range(least=8, most=1024)]  # a digit has 8 pixels
DIGITS = "0123456789"
OF_A_LINE, OF_A_CHARACTER = 2, 7  # numbers that decide how it is drawn
SIGNS = {  # as a hand would draw them in 8x8 pixels, each dark pixel by its row
    "+": ("........", "...#....", "...#....", ".#####..", "...#....", "...#....", "........", "........"),
    "=": ("........", "........", ".#####..", "........", "........", ".#####..", "........", "........"),
}

ALIKE = 64  # lines of one length that data.order.shuffle_window holds together

Glyphs = dict[str, np.ndarray]  # the pictures of each character, (m, 10, 10) uint8


class DigitLines(Source):
    """Lines of `min_length` to `max_length` digits, all lengths alike, in images of `height` pixels and their own
    width, a multiple of half the height.

    A line for training shows the same digits in each epoch, in another hand: it is composed of the numbers of (seed,
    epoch, index), and each of its digits bent a little. Other lines are always the same. A test line is made of digits
    that no training line has: the test digits of data=digits. Raises ValueError for lengths that do not fit together.
    """

    in_chans = 1
    characters = DIGITS
    longest: int | None = None  # digits in a row

    def __init__(self, *, num_lines: Count, num_evaluated: Count, min_length: Count, max_length: Count, height: Height):
        if min_length > max_length:
            raise ValueError(f"min_length {min_length} is above max_length {max_length}; make it smaller")
        if self.longest is not None and max_length > self.longest:
            raise ValueError(f"max_length {max_length} of the numbers in a sum is more than {self.longest}")
        self.counts = {"train": num_lines, "val": num_evaluated, "test": num_evaluated}
        self.min_length, self.max_length, self.height = min_length, max_length, height

    def open(self) -> dict[str, Pool]:
        vocabulary = CharacterVocabulary(self.characters)
        pools: dict[str, Pool] = {}
        for split, digits in load_split_digits():
            glyphs = dict(zip(DIGITS, digits, strict=True)) | signs()
            glyphs = {character: np.pad(pictures, BORDER) for character, pictures in glyphs.items()}
            lines, texts = self.lines(split)
            pools[split] = LinePool(lines, Texts(texts, vocabulary), glyphs, self.height, varied=split == "train")
        return pools

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        """Return the characters that the lines of a split show, and the texts to be written for them."""
        numbers = draw_fixed_numbers("digit lines", split, self.counts[split], 1 + self.max_length)
        lengths = self.min_length + (numbers[:, 0] * (self.max_length - self.min_length + 1)).astype(int)
        digits = (numbers[:, 1:] * 10).astype(int)
        texts = ["".join(map(str, row[:length])) for row, length in zip(digits, lengths, strict=True)]
        return texts, texts


class DigitSums(DigitLines):
    """Sums of two numbers with `min_length` to `max_length` digits each, all lengths alike: "3+4=" is shown, and
    "3+4=7" to be written. No sum of a split is one of another's, either way round. Raises ValueError for numbers of
    more than 3 digits."""

    characters = DIGITS + "+="
    longest = 3

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        numbers = draw_fixed_numbers("digit lines", split, self.counts[split], 3)
        lengths = self.min_length + (numbers[:, :2] * (self.max_length - self.min_length + 1)).astype(int)
        summands = np.zeros_like(lengths)
        for a, b in np.unique(lengths, axis=0).tolist():
            rows, own = (lengths == (a, b)).all(axis=1), list_sums(split, a, b)
            summands[rows] = own[(numbers[rows, 2] * len(own)).astype(int)]
        lines = [f"{a}+{b}=" for a, b in summands.tolist()]
        return lines, [f"{line}{a + b}" for line, (a, b) in zip(lines, summands.tolist(), strict=True)]


def list_sums(split: str, first: int, second: int) -> np.ndarray:
    """List all pairs of numbers with so many digits that belong to a split. -> (pairs, 2)"""
    least, most = ([0 if digits == 1 else 10 ** (digits - 1), 10**digits] for digits in (first, second))
    pairs = np.stack(np.meshgrid(np.arange(*least), np.arange(*most), indexing="ij"), axis=-1).reshape(-1, 2)
    return cast(np.ndarray, pairs[is_in_split(split, "digit sums", np.sort(pairs, axis=1))])


class LinePool(Pool):
    """Lines of glyphs, drawn when they are loaded; `varied`: anew in every epoch, each glyph in another hand.

    A group holds `ALIKE` lines of one length: a batch of these needs little padding.
    """

    def __init__(self, lines: Sequence[str], targets: Texts, glyphs: Glyphs, height: Height, *, varied: bool):
        digest = hashlib.blake2b(targets.tobytes(), digest_size=8)
        for character, pictures in glyphs.items():
            digest.update(character.encode() + pictures.tobytes())
        super().__init__(targets, f"{digest.hexdigest()}-{height}")
        self.lines, self.glyphs, self.height = lines, glyphs, height
        longest = max(map(len, lines))
        self.most = OF_A_LINE + OF_A_CHARACTER * longest
        self.draws = self.most + OF_A_HAND * longest if varied else 0
        by_length = np.argsort([len(text) for text in lines], kind="stable")
        self.groups = np.argsort(by_length, kind="stable") // ALIKE

    def load(self, i: int) -> np.ndarray:
        return draw_line(self.lay_out(i, draw_numbers("fixed line", np.array([[i]]), self.most)[0]), self.height)

    def compose(self, indices: Sequence[int], numbers: np.ndarray) -> list[Stored | Exception]:
        lines = [self.lay_out(i, row) for i, row in zip(indices, numbers[:, : self.most], strict=True)]
        hands = numbers[:, self.most :].reshape(len(lines), -1, OF_A_HAND)
        written = np.concatenate([own[: len(line.glyphs)] for own, line in zip(hands, lines, strict=True)])
        glyphs = iter(warp_glyphs(np.stack([glyph for line in lines for glyph in line.glyphs]), written))
        return [draw_line(line._replace(glyphs=list(islice(glyphs, len(line.glyphs)))), self.height) for line in lines]

    def lay_out(self, i: int, numbers: np.ndarray) -> "Line":
        """Lay a line out by `most` random numbers: its slant and spacing, and for each character its picture, width,
        height, lean, angle, height above the base, and the room behind it."""
        H, (slant, spacing, *others) = self.height, numbers.tolist()
        slant, spacing = scale_number(slant, -0.4, 0.4), scale_number(spacing, 0.0, 0.25)
        glyphs, left = [], H / 8
        places: list[tuple[float, ...]] = []
        for k, character in enumerate(self.lines[i]):
            which, wide, high, lean, angle, low, room = others[k * OF_A_CHARACTER : (k + 1) * OF_A_CHARACTER]
            pictures = self.glyphs[character]
            width, height = H * scale_number(wide, 0.7, 0.95), H * scale_number(high, 0.75, 1.0)
            lean, angle = slant + scale_number(lean, -0.15, 0.15), scale_number(angle, -0.15, 0.15)
            glyphs.append(pictures[int(which * len(pictures))])
            places.append((width / 8, height / 8, lean, angle, left + width / 2, height / 2 + low * (H - height)))
            left += width * 0.85 + H * scale_number(room, -0.05, 0.15) + H * spacing
        return Line(glyphs, places, left + H / 8)

    def name(self, i: int) -> str:
        return f"line {i}"


class Line(NamedTuple):
    """Glyphs, the arguments that each is drawn with, and their width together, in pixels."""

    glyphs: list[np.ndarray]
    places: list[tuple[float, ...]]
    width: float


def draw_line(laid_out: Line, H: int) -> np.ndarray:
    """-> (H, W) uint8"""
    step = H // 2
    line = np.zeros((H, step * math.ceil(laid_out.width / step)), np.uint8)
    for glyph, (across, down, lean, angle, x, y) in zip(laid_out.glyphs, laid_out.places, strict=True):
        begin, end = max(0, int(x - H)), min(line.shape[1], int(x + H) + 1)
        part = draw_glyph(glyph, across, down, lean, angle, x - begin, y, (end - begin, H))
        np.maximum(line[:, begin:end], part, out=line[:, begin:end])
    return line


def signs() -> Glyphs:
    pixels = {sign: [[255 * (dot == "#") for dot in row] for row in rows] for sign, rows in SIGNS.items()}
    return {sign: np.array([rows], dtype=np.uint8) for sign, rows in pixels.items()}
