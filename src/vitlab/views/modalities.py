"""How much images and texts look at each other, where both are one sequence.

L layers, h heads, T tokens of the sequence: N of an image, then Q of a question, then M of an answer
"""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.views.mosaic import pick
from vitlab.views.reading import MOST_LAYERS

COLOURS = {"words at the image": "tab:orange", "patches at the text": "tab:blue"}


def modalities_figure(whole: Tensor, question: Sequence[str], written: Sequence[str], title: str) -> Figure:
    """Draw each layer's attention (1, L, h, T, T), the mean of its heads: a row looks, a column is seen, and lines
    stand between image and text. What the question is filled up with has no name. A row of the answer writes a token,
    and is seen as the one before it. Below, layer by layer, the share of their attention that words give to the image,
    and patches to the text."""
    shares = whole[0].mean(dim=1).cpu()  # (L, T, T)
    N = shares.shape[1] - len(question) - len(written)
    layers = pick(len(shares), MOST_LAYERS)
    figure = Figure(figsize=(1 + 3.6 * len(layers), 6.2), layout="constrained")
    figure.suptitle(title, fontsize=11)
    places = figure.add_gridspec(2, len(layers), height_ratios=(3.6, 2))
    for column, layer in enumerate(layers):
        axes = figure.add_subplot(places[0, column])
        draw_whole(axes, shares[layer], [*question, *written], [*question, "begin", *written[:-1]])
        axes.set_title(f"layer {layer + 1}", fontsize=9)
    axes = figure.add_subplot(places[1, :])
    for name, (found, even) in measure_crossing(shares, N, question).items():
        axes.plot(range(1, len(found) + 1), found, "o-", color=COLOURS[name], label=name)
        axes.axhline(even, color=COLOURS[name], linewidth=0.8, linestyle=":")
    axes.set(xlabel="layer (dotted: if all were looked at alike)", ylabel="share of attention", ylim=(0, 1))
    axes.set_xticks(range(1, len(shares) + 1))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)  # above the points
    return figure


def measure_crossing(shares: Tensor, N: int, question: Sequence[str]) -> dict[str, tuple[Tensor, float]]:
    """Measure how much of attention (L, T, T) goes from one to the other: of each layer (L,), in the mean over the
    tokens that look, fill left out; and how much it would be if each looked at all that it may see alike."""
    given, T = N + len(question), shares.shape[1]
    words = [N + place for place, word in enumerate(question) if word] + list(range(given, T))
    seen = torch.tensor([max(given, place + 1) for place in words])  # tokens that each of them may see
    at_image, at_text = shares[:, words, :N].sum(dim=2), shares[:, :N, N:].sum(dim=2)
    return {
        "words at the image": (at_image.mean(dim=1), float((N / seen).mean())),
        "patches at the text": (at_text.mean(dim=1), len(question) / given),
    }


def draw_whole(axes: Axes, shares: Tensor, lookers: Sequence[str], seen: Sequence[str]) -> None:
    """Draw a layer's attention (T, T), with lines behind the image."""
    N = len(shares) - len(lookers)
    axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)
    for draw in (axes.axhline, axes.axvline):
        draw(N - 0.5, color="tab:red", linewidth=0.8)
    places = [(N - 1) / 2, *range(N, len(shares))]
    axes.set_yticks(places, ["patches", *lookers], fontsize=6)
    axes.set_xticks(places, ["patches", *seen], fontsize=6, rotation=90)
