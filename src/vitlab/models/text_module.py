"""What an encoder and a decoder of texts have in common: their options, embeddings, `depth` blocks and a last norm."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from vitlab.layers import (
    SEQUENCE_POSITIONS,
    SEQUENCE_ROTARIES,
    CausalAttention,
    MemoryAttention,
    NoRotary,
    SequenceAttention,
    TokenEmbedding,
)
from vitlab.models.initialization import initialize
from vitlab.models.options import TransformerOptions, make_choice
from vitlab.ranges import Length, VocabSize


@dataclass(frozen=True, kw_only=True)
class TextOptions(TransformerOptions):
    """What a Transformer of texts is given; it builds each layer anew. conf/model/_text.yaml says what each chooses."""

    vocab_size: VocabSize
    max_length: Length  # tokens of a text, its end among them
    norm_first: bool
    position: str = field(metadata=make_choice(SEQUENCE_POSITIONS))
    scale_embedding: bool
    embed_norm: bool
    causal: bool
    scaled_attention: bool

    @property
    def heads(self) -> dict[str, Any]:
        """Keywords of every attention."""
        return {
            "embed_dim": self.embed_dim,
            "num_heads": self.num_heads,
            "scaled": self.scaled_attention,
            "drop_rate": self.drop_rate,
            "attn_drop_rate": self.attn_drop_rate,
        }

    def build_attention(self) -> SequenceAttention:
        turn = SEQUENCE_ROTARIES.get(self.position, NoRotary)(head_dim=self.embed_dim // self.num_heads)
        kind = CausalAttention if self.causal else SequenceAttention
        return kind(**self.heads, turn=turn)

    def build_cross_attention(self, memory_dim: int) -> MemoryAttention:
        return MemoryAttention(**self.heads, memory_dim=memory_dim)

    def build_embedding(self) -> TokenEmbedding:
        return TokenEmbedding(
            vocab_size=self.vocab_size,
            embed_dim=self.embed_dim,
            scaled=self.scale_embedding,
            position=SEQUENCE_POSITIONS[self.position](embed_dim=self.embed_dim, max_length=self.max_length),
            norm=self.build_norm() if self.embed_norm else nn.Identity(),
            drop_rate=self.drop_rate,
        )


class TextModule(nn.Module):
    """Embeddings, `depth` blocks, each of which `build_block` makes, and, where norms come first, a last one."""

    def __init__(self, options: TextOptions, build_block: Callable[[], nn.Module]):
        super().__init__()
        self.max_length, self.embed_dim, self.depth = options.max_length, options.embed_dim, options.depth
        self.causal, self.scheme = options.causal, options.initialization
        self.embed = options.build_embedding()
        self.blocks = nn.ModuleList(build_block() for _ in range(options.depth))
        self.norm = options.build_norm() if options.norm_first else nn.Identity()

    def initialize(self) -> None:
        """Draw random weights; every parameter is overwritten."""
        self.apply(partial(initialize, scheme=self.scheme))
        self.embed.initialize()

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: biases, norms and position embeddings."""
        return {name for name, p in self.named_parameters() if p.ndim == 1 or name.endswith("pos_embed")}

    def get_layer_id(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the embeddings, also where they score tokens, 1 to depth the blocks,
        depth+1 what follows them."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith("embed.") else self.depth + 1
