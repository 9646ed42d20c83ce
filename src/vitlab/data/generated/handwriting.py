"""Glyphs as another hand would have written them: few digits are many, once each is bent a little anew.

k glyphs, m knots, H W image height and width
"""

import math
from typing import cast

import numpy as np
from PIL import Image

SIDE = 10  # pixels of a glyph
BORDER = ((0, 0), (1, 1), (1, 1))  # of a glyph, so that its strokes end softly
KNOTS = np.array([(y, x) for y in (0.5, 4.5, 8.5) for x in (0.5, 4.5, 8.5)])  # row and column, (m, 2)
OF_A_HAND = 4 + KNOTS.size  # numbers that decide how a glyph is changed
BEND = 0.7  # pixels that a knot moves at most, either way
PEN = 0.7  # ink to the power of 2^-PEN to 2^PEN
SPOTTED, SPOT = 0.3, 1.0  # share of glyphs that a spot is missing of, and half its side in pixels

POINTS = np.indices((2 * SIDE, 2 * SIDE)).reshape(2, -1) / 2 - 0.25  # rows and columns, twice as fine, (2, 400)
PULL = np.clip(1 - np.abs(POINTS - KNOTS[..., None]) / 4, 0, 1).prod(axis=1)  # of each knot at each point, (m, 400)


def warp_glyphs(glyphs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Bend glyphs (k, 10, 10) by moving knots, as elastic distortions do (Simard et al., 2003,
    doi:10.1109/ICDAR.2003.1227801), write them with a thinner or thicker pen, and leave a spot out of some: by numbers
    (k, OF_A_HAND), uniform in [0, 1). -> (k, 20, 20) uint8, twice as fine, so that no stroke is softened."""
    pen, spotted, spot, moves = np.split(2 * numbers - 1, [1, 2, 4], axis=1)
    ink = (interpolate_glyphs(glyphs / 255, BEND * moves.reshape(-1, 2, len(KNOTS))) ** 2 ** (PEN * pen)).clip(0, 1)
    away = np.abs(POINTS - (4.5 + 3 * spot)[..., None]).max(axis=1)  # (k, 400)
    ink[(away < SPOT) & (spotted < 2 * SPOTTED - 1)] = 0
    return (255 * ink).round().astype(np.uint8).reshape(-1, 2 * SIDE, 2 * SIDE)


def interpolate_glyphs(glyphs: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Resample glyphs, bilinearly, after their knots have moved by (k, 2, m) pixels.
    (k, 10, 10) -> (k, 400)"""
    y, x = np.clip(POINTS[:, None] + (moves @ PULL).swapaxes(0, 1), 0, SIDE - 1.001)
    row, column = y.astype(int), x.astype(int)
    down, right, which = y - row, x - column, np.arange(len(glyphs))[:, None]
    above, below = (
        glyphs[which, row + i, column] * (1 - right) + glyphs[which, row + i, column + 1] * right for i in (0, 1)
    )
    return cast(np.ndarray, above * (1 - down) + below * down)


def draw_glyph(
    glyph: np.ndarray, across: float, down: float, lean: float, angle: float, x: float, y: float, size: tuple[int, int]
) -> np.ndarray:
    """A glyph (10, 10), or the same in more pixels, stretched `across` and `down`, turned by an angle in radians and
    leaning to the right, with its middle at (x, y). Pillow wants to know of each pixel where it comes from: all that
    undone. -> (H, W) uint8"""
    fine, cos, sin = len(glyph) / 10, math.cos(angle), math.sin(angle)
    a, b = fine * cos / across, fine * (cos * lean + sin) / across
    d, e = -fine * sin / down, fine * (cos - sin * lean) / down
    coefficients = (a, b, 5 * fine - a * x - b * y, d, e, 5 * fine - d * x - e * y)
    image = Image.fromarray(glyph)
    return np.asarray(image.transform(size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR))


def scale_number(number: float, least: float, most: float) -> float:
    """A number in [0, 1) stretched over a range."""
    return least + number * (most - least)
