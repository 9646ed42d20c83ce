"""Note where a decoder looks in an image for each token that it writes, and which other tokens were likely.

C channels, H W image height and width, N patches, M tokens of the text, L layers of the decoder
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.layers import Grid, compute_grid
from vitlab.models import Captioner
from vitlab.views import eval_mode

CANDIDATES = 5  # of each token, the likeliest


class Writer(NamedTuple):
    """A model that writes of images; the function that gives the tokens (M,) of an image (1, C, H, W) and its grid, up
    to their end; the token that begins a text; the name of each token; and the function that gives the text of some."""

    model: Captioner
    write: Callable[[Tensor, Grid], Tensor]
    begin: int
    name: Callable[[int], str]
    decode: Callable[[list[int]], str]


class Writing(NamedTuple):
    """The written text; its tokens by their names; for each the likeliest ones that might have come, and the
    probabilities that were `said` of them (M, CANDIDATES); the probability of the text as a whole; and how much of its
    attention each token gave to each patch, in each layer, the mean of its heads: `looked` (L, M, N)."""

    text: str
    tokens: list[str]
    candidates: list[list[str]]
    said: Tensor
    probability: float
    looked: Tensor


def trace_writing(writer: Writer, image: Tensor) -> Writing:
    """Write the text of a normalised image (1, C, H, W), and note how each of its tokens came about."""
    model, encoder = writer.model, writer.model.encoder
    _, grid = compute_grid(image.shape[2:], encoder.patch_embed.patch_size)
    tokens = writer.write(image, grid)
    with eval_mode(model):
        memory = model.read(image, grid)
        before = torch.cat([torch.tensor([writer.begin]), tokens[:-1]])[None]
        probabilities = model.decoder(before, *memory)[0].softmax(dim=-1)  # (M, V)
        maps = model.decoder.attention_maps(before, *memory)
    said, best = probabilities.topk(min(CANDIDATES, probabilities.shape[1]))
    return Writing(
        writer.decode(tokens.tolist()),
        [writer.name(token) for token in tokens.tolist()],
        [[writer.name(token) for token in row] for row in best.tolist()],
        said,
        float(probabilities[torch.arange(len(tokens)), tokens].prod()),
        maps.memory[0].mean(dim=1)[..., encoder.num_prefix_tokens :],
    )
