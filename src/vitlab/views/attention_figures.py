"""Draw where a model looks: attention maps, rollout, distances.

B images, C channels, H W image height and width, L layers, h heads, N patches
"""

from textwrap import wrap

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from vitlab.layers import Grid
from vitlab.views.distance import patch_distances
from vitlab.views.mosaic import (
    HEAT,
    Scale,
    channels_last,
    draw_mosaic,
    format_count,
    mosaic_figure,
    mosaic_size,
    numbers,
    pick,
    scale_attention,
)

MOST_LAYERS, MOST_HEADS = 12, 12
LETTER = 0.08  # inches that one of the words beside an image takes
TILE = 112  # pixels of the longer side of an image in a mosaic


def make_tile(image: Tensor) -> Tensor:
    """Shrink or enlarge an image to a tile. (C, H, W) -> (H', W', 3)"""
    longer = max(image.shape[1:])
    size = [round(side * TILE / longer) for side in image.shape[1:]]
    if longer > TILE:
        image = F.interpolate(image[None], size=size, mode="bilinear", antialias=True)[0].clamp(0, 1)
    else:
        image = F.interpolate(image[None], size=size, mode="nearest-exact")[0]
    return channels_last(image)


def overlay_heat(image: Tensor, values: Tensor, grid: Grid, scale: Scale) -> np.ndarray:
    """Lay heat (L, h, N) over a pale image (C, H, W), the hotter the more opaque. -> (L, h, H', W', 3)"""
    grey = make_tile(image).mean(dim=2)  # (H', W')
    heat = F.interpolate(values.unflatten(-1, grid), size=grey.shape, mode="nearest-exact")  # (L, h, H', W')
    opacity = 0.3 + 0.65 * np.asarray(scale.norm(heat.numpy()))[..., None]
    pale = 0.15 + 0.85 * grey.numpy()[..., None]
    mixed: np.ndarray = opacity * scale.colours(heat) + (1 - opacity) * pale
    return mixed


def prepend_images(images: list[Tensor], values: Tensor, grid: Grid, scale: Scale) -> np.ndarray:
    """Put each image before its heat maps (B, h, N). -> (B, 1 + h, H', W', 3)"""
    heat = [overlay_heat(image, maps[None], grid, scale) for image, maps in zip(images, values, strict=True)]
    plain = np.stack([make_tile(image).numpy() for image in images])[:, None]
    return np.concatenate([plain, np.concatenate(heat)], axis=1)


def attention_figure(
    image: Tensor, maps: Tensor, pooling: Tensor | None, grid: Grid, *, whose: str, title: str
) -> Figure:
    """Draw the image, and below it rows of layers and columns of heads: the weights (L, h, N) of each over the image,
    and a last row for the `pooling`'s (h, N). Many layers or heads are thinned out evenly."""
    L, h, _ = maps.shape
    layers, heads = pick(L, MOST_LAYERS), pick(h, MOST_HEADS)
    rows, columns = numbers(layers), ["mean", *numbers(heads)]
    maps = maps[layers]
    if pooling is not None:
        maps, rows = torch.cat([maps, pooling[None]]), [*rows, "pooling"]
    maps = torch.cat([maps.mean(dim=1, keepdim=True), maps[:, heads]], dim=1)
    scale = scale_attention(maps)
    tiles = overlay_heat(image, maps, grid, scale)
    width, height = mosaic_size(tiles, max(1.1, 5 / len(columns)))
    width = max(width, 6.5)
    figure = Figure(figsize=(width, 2 + height), layout="constrained")
    parts = figure.add_gridspec(2, 1, height_ratios=[2, height])
    above, below = figure.add_subfigure(parts[0]), figure.add_subfigure(parts[1])
    picture, words = above.subplots(1, 2, width_ratios=[2.2, width - 2.2])
    picture.imshow(channels_last(image).numpy())
    count = f"{format_count(L, MOST_LAYERS, 'layer')}, {format_count(h, MOST_HEADS, 'head')}"
    lines = [title, f"attention of {whose}", count, "1 is what each token would get if all got the same"]
    wrapped = [part for line in "\n".join(lines).splitlines() for part in wrap(line, int((width - 2.2) / LETTER))]
    words.text(0, 0.5, "\n".join(wrapped), va="center", fontsize=10, linespacing=1.5)
    for axes in (picture, words):
        axes.set_axis_off()
    draw_mosaic(below.subplots(), tiles, rows, columns, ("layer", "head"), scale)
    return figure


def rollout_figure(images: list[Tensor], rolled: Tensor, grid: Grid, *, whose: str, titles: list[str]) -> Figure:
    """Draw a row for each image, and a column for some layers: the weights (B, L, N) up to that layer over the
    image."""
    layers = pick(rolled.shape[1], MOST_LAYERS)
    rolled = rolled[:, layers]
    last = rolled[:, -1]  # the one that counts: earlier ones may go beyond its colours
    low, high = float(last.min()), float(last.max())
    beyond = bool((rolled < low).any()), bool((rolled > high).any())
    extend = {(True, False): "min", (False, True): "max", (True, True): "both"}.get(beyond, "neither")
    scale = Scale(Normalize(low, high, clip=True), HEAT, "times the patches' mean", extend)
    return mosaic_figure(
        prepend_images(images, rolled, grid, scale),
        titles,
        ["image", *numbers(layers)],
        title=f"attention rollout: what {whose} has gathered of each patch",
        labels=("", "after layer"),
        scale=scale,
    )


def relevance_figure(images: list[Tensor], values: Tensor, grid: Grid, *, titles: list[str]) -> Figure:
    """A row for each image, and a column for each of its likeliest classes: what speaks for it (B, k, N), each in
    multiples of the patches' mean, over the image."""
    values = values / values.mean(dim=-1, keepdim=True).clamp_min(1e-30)
    scale = Scale(PowerNorm(0.5, 0, max(3.0, float(values.max())), clip=True), HEAT, "times the patches' mean")
    ranks = ["the likeliest", "the second"][: values.shape[1]]
    return mosaic_figure(
        prepend_images(images, values, grid, scale),
        titles,
        ["image", *ranks],
        title="relevance: which patches speak for a class\n(attention weighted by the gradient of its logit)",
        labels=("", "class"),
        scale=scale,
        largest=1.6,
    )


def distance_figure(distances: Tensor, grid: Grid, patch_size: int) -> Figure:
    """Draw a dot for each head, the mean over the images (B, L, h), and the distance that even attention would have."""
    B, L, h = distances.shape
    values = distances.mean(dim=0).numpy()  # (L, h)
    layers = np.arange(1, L + 1)
    even = float(patch_distances(grid, patch_size).mean())
    figure = Figure(figsize=(min(max(5, 2 + 0.35 * L), 12), 4), layout="constrained")
    axes = figure.subplots()
    axes.scatter(layers.repeat(h), values, s=22, alpha=0.6, color="tab:blue", linewidths=0, label="a head")
    axes.plot(layers, values.mean(axis=1), color="tab:orange", label="mean of the heads")
    axes.axhline(even, color="grey", linestyle="--", linewidth=1, label="even attention")
    axes.set(xlabel="layer", ylabel="mean attention distance (pixels)", ylim=(0, 1.1 * max(even, values.max(), 1)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_title(f"how far patches look: {format_count(B, B, 'image')}", fontsize=11)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure
