"""Where a decoder looks while it writes, token by token.

C channels, H W image height and width, L layers, h heads, M tokens written, N tokens of what was read, h w grid
"""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.layers import Grids, MixedGrids
from vitlab.models import AttentionMaps
from vitlab.views.attention_figures import overlay_heat
from vitlab.views.mosaic import mosaic_figure, numbers, pick, scale_attention

MOST_LAYERS = 6


def reading_figure(
    image: Tensor, grids: Grids, memory: Tensor, tokens: Sequence[str], title: str, rows: str = "written"
) -> Figure:
    """A row for each of the `tokens`, which are what `rows` says, and columns of layers, the mean over their heads, and
    that of all: how much of an image (C, H, W) it saw, (1, L, h, M, ·). The first tokens of the memory, which are no
    patches, are left out."""
    grid = grids.grids[0] if isinstance(grids, MixedGrids) else grids
    N = grid[0] * grid[1]
    seen = memory[0, ..., -N:].mean(dim=1).cpu()  # (L, M, N)
    layers = pick(len(seen), MOST_LAYERS)
    seen = torch.cat([seen.mean(dim=0, keepdim=True), seen[layers]]).transpose(0, 1) * N  # (M, 1 + L, N)
    scale = scale_attention(seen)
    tiles = overlay_heat(image, seen, grid, scale)
    columns = ["mean", *numbers(layers)]
    labels = (rows, "layer")
    return mosaic_figure(tiles, tokens, columns, title=title, labels=labels, scale=scale, largest=2.2)


def texts_figure(
    looks: AttentionMaps, encoder: Tensor, words: Sequence[str], written: Sequence[str], title: str
) -> Figure:
    """Three kinds of attention of the Transformer, one below the other, each layer beside the next, in the mean of its
    heads: among the words read (1, L, h, N, N), among those written, and from those to these. A row is a token that
    looks. What is written begins with what stands before its first token, and is behind it by one."""
    before = ["begin", *written[:-1]]
    rows = [
        ("the encoder reads", encoder, words, words),
        ("the decoder looks at what it has written", looks.written, written, before),
        ("the decoder looks at what was read", looks.memory, written, words),
    ]
    layers = pick(max(weights.shape[1] for _, weights, _, _ in rows), MOST_LAYERS)
    figure = Figure(figsize=(1 + 3.2 * len(layers), 3 * len(rows) + 0.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    grid = figure.subplots(len(rows), len(layers), squeeze=False)
    for line, (name, weights, lookers, seen) in zip(grid, rows, strict=True):
        shares = weights[0].mean(dim=1).cpu()  # (L, M, N)
        for axes, layer in zip(line, layers, strict=True):
            draw_matrix(axes, shares[layer], lookers, seen) if layer < len(shares) else axes.set_axis_off()
            axes.set_title(f"{name}: layer {layer + 1}" if layer == 0 else f"layer {layer + 1}", fontsize=8)
    return figure


def draw_matrix(axes: Axes, shares: Tensor, lookers: Sequence[str], seen: Sequence[str]) -> None:
    """Rows (M, N) that are distributions, with the tokens they belong to."""
    axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(lookers)), lookers, fontsize=7)
    axes.set_xticks(range(len(seen)), seen, fontsize=7, rotation=90 if max(map(len, seen)) > 2 else 0)
