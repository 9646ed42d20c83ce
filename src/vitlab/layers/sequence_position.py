"""Where a token stands in a text: by what is added to it, or by how its queries and keys are turned.

R sequences, M tokens, D width, h heads, d head width
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vitlab.layers.position_embedding import sines
from vitlab.layers.rotary_position import frequencies, turn


class NoSequencePosition(nn.Module):
    """Tokens without places: a bag of words, but for what a causal mask tells. The base of the others."""

    def __init__(self, *, embed_dim: int, max_length: int):
        super().__init__()

    def forward(self, x: Tensor, start: int) -> Tensor:
        """Tokens (R, M, D), the first of which has `start` before it, with their places."""
        return x


class LearnedSequencePosition(NoSequencePosition):
    """A learned row is added for each of `max_length` places (Vaswani et al., 2017, arXiv:1706.03762, section 3.5)."""

    def __init__(self, *, embed_dim: int, max_length: int):
        super().__init__(embed_dim=embed_dim, max_length=max_length)
        self.pos_embed = nn.Parameter(torch.empty(max_length, embed_dim))

    def forward(self, x: Tensor, start: int) -> Tensor:
        return x + self.pos_embed[start : start + x.shape[1]]


class SineSequencePosition(NoSequencePosition):
    """Fixed sines and cosines by turns are added (section 3.5, both equations). They are in the state dict, so that a
    model may have others. Raises ValueError if D is odd."""

    pos_embed: Tensor

    def __init__(self, *, embed_dim: int, max_length: int):
        super().__init__(embed_dim=embed_dim, max_length=max_length)
        if embed_dim % 2:
            raise ValueError(
                f"embed_dim {embed_dim} is odd, but positions are pairs of a sine and a cosine; make it even"
            )
        exponent = torch.arange(embed_dim // 2, dtype=torch.float64) / (embed_dim // 2)
        waves = torch.stack(sines(torch.arange(max_length), exponent), dim=2).flatten(1)
        self.register_buffer("pos_embed", waves.float())

    def forward(self, x: Tensor, start: int) -> Tensor:
        return x + self.pos_embed[start : start + x.shape[1]].to(x.dtype)


class NoRotary(nn.Module):
    """Queries and keys as they are."""

    def __init__(self, *, head_dim: int):
        super().__init__()

    def forward(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Queries and keys (R, h, M, d) of tokens, with positions applied; `start` tokens come before the first."""
        return q, k


class RotarySequencePosition(NoRotary):
    """Each pair of a query or key turns with its place, and their product sees the distance alone (Su et al., 2021,
    arXiv:2104.09864, equations 14 and 15). Nothing is learned. Raises ValueError if d is odd."""

    def __init__(self, *, head_dim: int):
        super().__init__(head_dim=head_dim)
        if head_dim % 2:
            raise ValueError(f"position 'rotary_1d' needs an even head width, but embed_dim/num_heads is {head_dim}")

    def forward(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        place = torch.arange(start, start + q.shape[2], device=q.device)
        angles = place[:, None] * frequencies(q.shape[-1] // 2, 10_000.0, q.device)  # (M, d/2)
        return turn(q, angles), turn(k, angles)


SEQUENCE_POSITIONS: dict[str, Callable[..., NoSequencePosition]] = {
    "none": NoSequencePosition,
    "learned_1d": LearnedSequencePosition,
    "sincos_1d": SineSequencePosition,
    "rotary_1d": NoSequencePosition,  # acts in attention
}
SEQUENCE_ROTARIES: dict[str, Callable[..., NoRotary]] = {"rotary_1d": RotarySequencePosition}
