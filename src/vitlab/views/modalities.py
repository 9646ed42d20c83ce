"""How much images and texts look at each other, where both are one sequence.

L layers, h heads, T tokens of the sequence, of which the first N are an image's, and the others M are of a text
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.views.mosaic import pick
from vitlab.views.reading import MOST_LAYERS

COLOURS = {"image": "tab:orange", "text": "tab:blue"}


def modalities_figure(whole: Tensor, words: Sequence[str], title: str) -> Figure:
    """Each layer's attention (1, L, h, T, T), the mean of its heads: a row looks, a column is seen, and lines stand
    between image and text, the M `words` of which are named. Below, layer by layer, the share of their attention that
    images give to the text, and words to the image."""
    shares = whole[0].mean(dim=1).cpu()  # (L, T, T)
    N = shares.shape[1] - len(words)
    layers = pick(len(shares), MOST_LAYERS)
    figure = Figure(figsize=(1 + 3.6 * len(layers), 6.2), layout="constrained")
    figure.suptitle(title, fontsize=11)
    places = figure.add_gridspec(2, len(layers), height_ratios=(3.6, 2))
    for column, layer in enumerate(layers):
        axes = figure.add_subplot(places[0, column])
        draw_whole(axes, shares[layer], words, N)
        axes.set_title(f"layer {layer + 1}", fontsize=9)
    axes = figure.add_subplot(places[1, :])
    seen = {"image": shares[:, N:, :N], "text": shares[:, :N, N:]}  # by the other
    for name, part in seen.items():
        other = "words at the image" if name == "image" else "patches at the text"
        axes.plot(range(1, len(part) + 1), part.sum(dim=2).mean(dim=1), "o-", color=COLOURS[name], label=other)
    axes.axhline(N / (N + len(words)), color=COLOURS["image"], linewidth=0.8, linestyle=":")
    axes.axhline(len(words) / (N + len(words)), color=COLOURS["text"], linewidth=0.8, linestyle=":")
    axes.set(xlabel="layer (dotted: if all were looked at alike)", ylabel="share of attention", ylim=(0, 1))
    axes.set_xticks(range(1, len(shares) + 1))
    axes.legend(loc="upper right", fontsize=8)
    return figure


def draw_whole(axes: Axes, shares: Tensor, words: Sequence[str], N: int) -> None:
    """A layer's attention (T, T), with a line behind the N tokens of the image."""
    axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)
    for draw in (axes.axhline, axes.axvline):
        draw(N - 0.5, color="tab:red", linewidth=0.8)
    places, names = [(N - 1) / 2, *range(N, N + len(words))], ["patches", *words]
    axes.set_yticks(places, names, fontsize=6)
    axes.set_xticks(places, names, fontsize=6)
