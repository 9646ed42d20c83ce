"""Numbers of words, or of characters, as tokens with places (Vaswani et al., 2017, arXiv:1706.03762, sections 3.4, 3.5,
5.4).

R sequences, M tokens, D width
"""

import math

from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """A learned row for each of `vocab_size` words, times √D where `scaled`, then `position`, `norm` and dropout.
    (R, M) -> (R, M, D)."""

    def __init__(
        self, *, vocab_size: int, embed_dim: int, scaled: bool, position: nn.Module, norm: nn.Module, drop_rate: float
    ):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, embed_dim)
        self.scale = math.sqrt(embed_dim) if scaled else 1.0
        self.position = position
        self.norm = norm
        self.drop = nn.Dropout(drop_rate)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """`start` tokens stand before the first."""
        return self.drop(self.norm(self.position(self.tokens(tokens) * self.scale, start)))

    def initialize(self) -> None:
        """Rows and learned places of length 1 in the mean, so that a row that is both read and scored with (section
        3.4) gives logits of size 1."""
        std = self.tokens.embedding_dim**-0.5
        for table in (self.tokens.weight, *self.position.parameters()):
            nn.init.normal_(table, std=std)
