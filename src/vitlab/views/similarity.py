"""How alike images and texts are to a model that has learned both.

n images, T texts, C channels, H W image height and width
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.views.attention_figures import make_tile

SQUARE = np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]])  # its corners, x and y
MOST_NUMBERED = 300  # cells in which a number can be read


def similarity_figure(images: Sequence[Tensor], texts: Sequence[str], cosines: Tensor) -> Figure:
    """A row for each image (C, H, W) in [0, 1], a column for each text: the cosines (n, T) of their features. In each
    row the best is framed."""
    n, T = cosines.shape
    figure = Figure(figsize=(1.6 + 0.62 * T, 1.4 + 0.6 * n), layout="constrained")
    axes = figure.add_subplot()
    drawn = axes.imshow(cosines.numpy(), cmap="viridis", aspect="auto", extent=(-0.5, T - 0.5, n - 0.5, -0.5))
    middle = float(cosines.mean())
    for row, image in enumerate(images):
        axes.imshow(make_tile(image).numpy(), extent=(-1.6, -0.6, row + 0.45, row - 0.45), aspect="auto")
        best = int(cosines[row].argmax())
        axes.plot(best + 0.45 * SQUARE[0], row + 0.45 * SQUARE[1], color="tab:red", linewidth=2)
        for column, cosine in enumerate(cosines[row].tolist() if n * T <= MOST_NUMBERED else []):
            colour = "white" if cosine < middle else "black"
            axes.text(column, row, f"{cosine:.2f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xlim(-1.7, T - 0.5)
    axes.set_ylim(n - 0.5, -0.5)
    axes.set_xticks(range(T), texts, rotation=60, ha="right", fontsize=8)
    axes.set_yticks([])
    figure.colorbar(drawn, ax=axes, label="cosine")
    return figure
