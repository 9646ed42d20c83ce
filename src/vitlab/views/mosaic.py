"""Draw many small pictures as one, with a label for each row and column.

R rows, K columns, H W height and width of a tile
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

HEAT = "inferno"
FINEST = 30  # pixels of a tile, at least
GAP = 0.07  # between tiles, as a part of their longer side


class Scale(NamedTuple):
    """How numbers become colours, the same for all tiles, and what the numbers are."""

    norm: Normalize
    cmap: str
    label: str
    extend: str = "neither"  # ends of the colour bar that stand for all values beyond: "min", "max" or "both"

    def colours(self, values: Tensor) -> np.ndarray:
        """(...) -> (..., 3) in [0, 1]"""
        colours: np.ndarray = colormaps[self.cmap](self.norm(values.numpy()))
        return colours[..., :3]


def scale_attention(values: Tensor) -> Scale:
    """Scale multiples of even attention, which is dark: only what gets clearly more is bright. The few largest values
    are clipped, which the colour bar shows."""
    highest = max(6.0, float(values.flatten().quantile(0.995)))
    extend = "max" if bool((values > highest).any()) else "neither"
    return Scale(PowerNorm(0.7, 0, highest, clip=True), HEAT, "times even attention", extend)


def channels_last(image: Tensor) -> Tensor:
    """Arrange channels for drawing: (C, H, W) in [0, 1] -> (H, W, 3). Of 2 or more than 4 channels the first is shown,
    of 4 the first three."""
    image = image[:3] if len(image) in (3, 4) else image[:1].expand(3, -1, -1)
    return image.permute(1, 2, 0)


def pick(count: int, most: int) -> list[int]:
    """Pick up to `most` of the numbers 0 to count-1, evenly spaced, with the first and the last."""
    return [round(number) for number in np.linspace(0, count - 1, min(count, most))]


def format_count(count: int, most: int, what: str) -> str:
    """Say how many there are, and how many of them are shown."""
    plural = what if count == 1 else f"{what}s"
    return f"{count} {plural}" if count <= most else f"{most} of {count} {plural}"


def numbers(places: Sequence[int]) -> list[str]:
    """Make labels that count from 1."""
    return [str(place + 1) for place in places]


def mosaic_size(tiles: np.ndarray, largest: float) -> tuple[float, float]:
    """Give the width and height in inches of a mosaic (R, K, H, W, 3) with its labels. No tile is larger than
    `largest`, nor the mosaic than 13 inches."""
    R, K, H, W, _ = tiles.shape
    gap = GAP * max(H, W)
    inch = min(largest / max(H, W), 13 / max(R * (H + gap), K * (W + gap)))  # size of one pixel
    return K * (W + gap) * inch + 1.6, R * (H + gap) * inch + 0.7


def draw_mosaic(
    axes: Axes,
    tiles: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
    scale: Scale | None,
) -> None:
    """Draw tiles (R, K, H, W, 3) in [0, 1] with white between them. `labels` say what rows and columns are."""
    larger = -(-FINEST // max(tiles.shape[2:4]))  # so that the gap between small tiles can be thin
    tiles = tiles.repeat(larger, axis=2).repeat(larger, axis=3)
    R, K, H, W, _ = tiles.shape
    gap = round(GAP * max(H, W))
    canvas = np.ones((R, K, H + gap, W + gap, 3))
    canvas[:, :, :H, :W] = tiles
    canvas = canvas.transpose(0, 2, 1, 3, 4).reshape(R * (H + gap), K * (W + gap), 3)[:-gap, :-gap]
    axes.imshow(canvas)
    axes.set_xticks([(W + gap) * k + (W - 1) / 2 for k in range(K)], columns, fontsize=9)
    axes.set_yticks([(H + gap) * r + (H - 1) / 2 for r in range(R)], rows, fontsize=9)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.xaxis.set_label_position("top")
    axes.spines[:].set_visible(False)
    axes.set(ylabel=labels[0], xlabel=labels[1])
    if scale is not None:
        colours = ScalarMappable(scale.norm, scale.cmap)
        bar = axes.figure.colorbar(colours, ax=axes, extend=scale.extend, fraction=0.04, pad=0.02, aspect=25)
        low, high = scale.norm.vmin, scale.norm.vmax
        bar.set_ticks([tick for tick in bar.get_ticks() if low <= tick <= high])  # beyond, labels lie on each other
        bar.set_label(scale.label, fontsize=10)
        bar.ax.tick_params(labelsize=9)


def mosaic_figure(
    tiles: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    labels: tuple[str, str],
    scale: Scale | None,
    largest: float = 1.1,
) -> Figure:
    """Draw a mosaic alone, with a title above it."""
    width, height = mosaic_size(tiles, largest)
    width += 0.08 * max(len(line) for row in rows for line in row.split("\n")) + (0.3 if labels[0] else 0)
    figure = Figure(figsize=(max(width, 5), height + 0.5), layout="compressed")
    figure.suptitle(title, fontsize=11)
    draw_mosaic(figure.subplots(), tiles, rows, columns, labels, scale)
    return figure
