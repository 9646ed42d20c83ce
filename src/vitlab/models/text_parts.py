"""The layers that an encoder and a decoder of texts are both built of, by the options of either."""

from functools import partial
from typing import Any

from torch import nn

from vitlab.layers import (
    MLPS,
    NORMS,
    SEQUENCE_POSITIONS,
    SEQUENCE_TURNS,
    CausalAttention,
    MemoryAttention,
    NoTurn,
    SequenceAttention,
    TokenEmbedding,
    mlp_width,
)
from vitlab.models.initialization import SCHEMES, initialize
from vitlab.models.options import one_of


class TextParts:
    """Makes each layer anew; options are those of `Decoder`. Raises ValueError for sizes that do not fit together, and
    for an option that there is none of."""

    def __init__(
        self,
        *,
        vocab_size: int,
        max_length: int,
        embed_dim: int,
        depth: int,
        num_heads: int,
        mlp: str,
        mlp_ratio: float | None,
        mlp_dim: int | None,
        norm: str,
        norm_eps: float,
        position: str,
        scale_embedding: bool,
        embed_norm: bool,
        scaled_attention: bool,
        initialization: str,
        drop_rate: float,
        attn_drop_rate: float,
    ):
        one_of("mlp", mlp, MLPS)
        one_of("norm", norm, NORMS)
        one_of("position", position, SEQUENCE_POSITIONS)
        one_of("initialization", initialization, SCHEMES)
        heads: dict[str, Any] = {"embed_dim": embed_dim, "num_heads": num_heads, "scaled": scaled_attention}
        heads |= {"drop_rate": drop_rate, "attn_drop_rate": attn_drop_rate}
        turn = partial(SEQUENCE_TURNS.get(position, NoTurn), head_dim=embed_dim // num_heads)
        mlp_dim = mlp_width(embed_dim, mlp_ratio, mlp_dim)
        self.norm = partial(NORMS[norm], embed_dim, eps=norm_eps)
        self.mlp = partial(MLPS[mlp], embed_dim=embed_dim, mlp_dim=mlp_dim, drop_rate=drop_rate)
        self.attention = lambda: SequenceAttention(**heads, turn=turn())
        self.causal_attention = lambda: CausalAttention(**heads, turn=turn())
        self.cross_attention = partial(MemoryAttention, **heads)
        self.embedding = lambda: TokenEmbedding(
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            scaled=scale_embedding,
            position=SEQUENCE_POSITIONS[position](embed_dim=embed_dim, max_length=max_length),
            norm=self.norm() if embed_norm else nn.Identity(),
            drop_rate=drop_rate,
        )


class TextModule(nn.Module):
    """What an encoder and a decoder of texts have in common: embeddings, `depth` blocks and a last norm."""

    depth: int
    scheme: str
    embed: TokenEmbedding
    blocks: nn.ModuleList

    def initialize(self) -> None:
        """Random weights; every parameter is overwritten."""
        self.apply(partial(initialize, scheme=self.scheme))
        self.embed.initialize()

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: biases, norms and position embeddings."""
        return {name for name, p in self.named_parameters() if p.ndim == 1 or name.endswith("pos_embed")}

    def layer_of(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the embeddings, those that also score among them, 1 to depth the blocks,
        depth+1 what follows them."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith("embed.") else self.depth + 1
