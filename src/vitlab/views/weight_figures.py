"""Draw what a model has learned, without any image: positions and filters.

L layers, h w grid, D filters, C channels, P filter height and width
"""

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.layers import ConvolutionalStem
from vitlab.models import VisionTransformer
from vitlab.views.filters import embedding_filters, principal_components
from vitlab.views.mosaic import Scale, format_count, mosaic_figure, numbers, pick
from vitlab.views.position import embedding_similarity, relative_bias, rotary_similarity

MOST_PLACES, MOST_LAYERS, MOST_HEADS = 14, 12, 12
MOST_COMPONENTS, MOST_FILTERS, MOST_CHANNELS = 28, 56, 12
COLUMNS = 7  # filters in a row
DIVERGING = "RdBu_r"  # white is 0


def position_figure(model: VisionTransformer) -> Figure | None:
    """Draw the similarity of added embeddings, or the biases of relative ones, or the similarity that rotary ones make.
    None for a model that knows no positions."""
    similarity, bias, rotary = embedding_similarity(model), relative_bias(model), rotary_similarity(model)
    if similarity is not None:
        grid = model.patch_embed.grid
        return similarity_figure(similarity.unflatten(1, grid).unflatten(0, grid))
    if bias is not None:
        return bias_figure(bias)
    return None if rotary is None else rotary_figure(rotary)


def similarity_figure(similarity: Tensor) -> Figure:
    """Draw a grid of grids (h, w, h, w): the first two say whose similarity to all patches a tile shows."""
    h, w = similarity.shape[:2]
    rows, columns = pick(h, MOST_PLACES), pick(w, MOST_PLACES)
    scale = Scale(Normalize(-1, 1), DIVERGING, "cosine similarity")
    return mosaic_figure(
        scale.colours(similarity[rows][:, columns]),
        numbers(rows),
        numbers(columns),
        title="position embeddings: how alike each patch's is to all",
        labels=(
            f"{format_count(h, MOST_PLACES, 'row')} of patches",
            f"{format_count(w, MOST_PLACES, 'column')} of patches",
        ),
        scale=scale,
        largest=0.9,
    )


def bias_figure(bias: Tensor) -> Figure:
    """Draw biases (L, heads, 2h-1, 2w-1): rows are layers, columns heads, and the query is in the middle of each
    tile."""
    L, heads = bias.shape[:2]
    rows, columns = pick(L, MOST_LAYERS), pick(heads, MOST_HEADS)
    bias = bias[rows][:, columns]
    scale = Scale(CenteredNorm(0, float(bias.abs().max()) or 1.0), DIVERGING, "added to the score")
    return mosaic_figure(
        scale.colours(bias),
        numbers(rows),
        numbers(columns),
        title="relative positions: bias by where the key lies,\nseen from the query in the middle of a tile",
        labels=(format_count(L, MOST_LAYERS, "layer"), format_count(heads, MOST_HEADS, "head")),
        scale=scale,
    )


def rotary_figure(similarity: Tensor) -> Figure:
    """Draw one tile (2h-1, 2w-1), the same in every layer and head."""
    scale = Scale(Normalize(-1, 1), DIVERGING, "product of unit vectors")
    figure = mosaic_figure(
        scale.colours(similarity[None, None]),
        [""],
        [""],
        title="rotary positions: product of a query with itself,\neach turned by its place",
        labels=("rows between them", "columns between them"),
        scale=scale,
        largest=4.0,
    )
    axes = figure.axes[0]
    drawn = axes.images[0].get_size()
    for side, pixels, set_ticks in zip(similarity.shape, drawn, (axes.set_yticks, axes.set_xticks), strict=False):
        places = pick(side, 5)
        set_ticks([(p + 0.5) * pixels / side - 0.5 for p in places], [str(p - side // 2) for p in places])
    return figure


def filters_figure(model: VisionTransformer) -> Figure:
    """Draw the principal components of the patch embedding's filters; for a convolutional stem the first filters
    themselves. With 3 channels a tile is in colour, and grey is 0; otherwise white is 0, and there is a row for each
    channel."""
    filters = embedding_filters(model)
    D, C, P, _ = filters.shape
    if isinstance(model.patch_embed, ConvolutionalStem):
        filters = filters[pick(D, MOST_FILTERS)]
        title = f"first convolution: {format_count(D, MOST_FILTERS, 'filter')} of {P}x{P}"
    else:
        filters, shares = principal_components(filters, MOST_COMPONENTS)
        title = (
            f"patch embedding: the first {len(filters)} principal components\n"
            f"of {D} filters hold {shares.sum():.0%} of the variance"
        )
    tiles = 0.5 + 0.5 * filters / filters.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-30)  # 0 is grey
    if C in (1, 3):
        colours = tiles.permute(0, 2, 3, 1).numpy() if C == 3 else colormaps[DIVERGING](tiles[:, 0].numpy())[..., :3]
        mosaic = wrap_tiles(colours)
        starts = range(0, len(tiles), COLUMNS)
        rows, columns = (
            [f"{start + 1} to {min(start + COLUMNS, len(tiles))}" for start in starts],
            [""] * mosaic.shape[1],
        )
        labels = ("", "")
    else:
        channels = pick(C, MOST_CHANNELS)
        tiles = tiles[: 2 * COLUMNS, channels].transpose(0, 1)  # (channels, filters, P, P)
        mosaic = colormaps[DIVERGING](tiles.numpy())[..., :3]
        rows, columns = numbers(channels), numbers(range(tiles.shape[1]))
        labels = (format_count(C, MOST_CHANNELS, "channel"), f"the first {len(columns)}")
    return mosaic_figure(mosaic, rows, columns, title=title, labels=labels, scale=None, largest=0.8)


def wrap_tiles(tiles: np.ndarray) -> np.ndarray:
    """Wrap tiles into rows, the last filled with white. (n, P, P, 3) -> (rows, columns, P, P, 3)"""
    columns = min(COLUMNS, len(tiles))
    white = np.ones((-len(tiles) % columns, *tiles.shape[1:]))
    return np.concatenate([tiles, white]).reshape(-1, columns, *tiles.shape[1:])
