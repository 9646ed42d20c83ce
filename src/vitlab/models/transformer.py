"""Where ViT comes from: the Transformer, an encoder and a decoder (Vaswani et al., 2017, arXiv:1706.03762).

ViT is its encoder with the norms before attention and MLP, and patches for words. A decoder adds two things: a mask
that hides what is still to be written, and attention to what was read. To be read beside vit.py; the training harness,
which is for images, does not build it.

B batch, N words read, M words written, D embed_dim, V words in the vocabulary
"""

import math
from functools import partial

import torch
from torch import Tensor, nn

from vitlab.layers import MLPS, Attention, CrossAttention, causal_mask, padding_mask, sines
from vitlab.models.initialization import initialize


class EncoderLayer(nn.Module):
    """Attention and MLP, each within a residual and before a norm, where ViT has the norm first: figure 1, left.

    (B, N, D) -> (B, N, D).
    """

    def __init__(self, *, embed_dim: int, num_heads: int, mlp_dim: int):
        super().__init__()
        self.attn = Attention(embed_dim=embed_dim, num_heads=num_heads, qkv_bias=True)
        self.norm1 = nn.LayerNorm(embed_dim)
        self.mlp = MLPS["relu"](embed_dim=embed_dim, mlp_dim=mlp_dim, drop_rate=0.0)
        self.norm2 = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attn(x, attn_mask=attn_mask))
        return self.norm2(x + self.mlp(x))


class DecoderLayer(nn.Module):
    """Attention to what is written so far, attention to what was read, and an MLP: figure 1, right.

    (B, M, D), (B, N, D) -> (B, M, D).
    """

    def __init__(self, *, embed_dim: int, num_heads: int, mlp_dim: int):
        super().__init__()
        self.attn = Attention(embed_dim=embed_dim, num_heads=num_heads, qkv_bias=True)
        self.norm1 = nn.LayerNorm(embed_dim)
        self.cross_attn = CrossAttention(embed_dim=embed_dim, num_heads=num_heads)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = MLPS["relu"](embed_dim=embed_dim, mlp_dim=mlp_dim, drop_rate=0.0)
        self.norm3 = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attn(x, attn_mask=causal_mask(x.shape[1], x.device)))
        x = self.norm2(x + self.cross_attn(x, memory, memory_mask))
        return self.norm3(x + self.mlp(x))


class Transformer(nn.Module):
    """Words in, words out: `read` encodes a sequence, `write` says which word comes next after each of another.

    Words are numbers below `vocabulary`. One matrix embeds them and scores them (section 3.4); positions are fixed
    sines (section 3.5). Raises ValueError for sizes that do not fit together.
    """

    def __init__(self, *, vocabulary: int, embed_dim: int, depth: int, num_heads: int, mlp_dim: int):
        super().__init__()
        if embed_dim % 2:
            raise ValueError(f"embed_dim {embed_dim} is odd, and positions are pairs of a sine and a cosine")
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "mlp_dim": mlp_dim}
        self.embed = nn.Embedding(vocabulary, embed_dim)
        self.encoder = nn.ModuleList(EncoderLayer(**sizes) for _ in range(depth))
        self.decoder = nn.ModuleList(DecoderLayer(**sizes) for _ in range(depth))
        self.apply(partial(initialize, scheme="xavier"))
        nn.init.normal_(self.embed.weight, std=embed_dim**-0.5)

    def place(self, words: Tensor) -> Tensor:
        """Embeddings with positions added. (B, N) -> (B, N, D)"""
        D = self.embed.embedding_dim
        exponent = torch.arange(D // 2, dtype=torch.float64, device=words.device) / (D // 2)
        waves = torch.stack(sines(torch.arange(words.shape[1], device=words.device), exponent), dim=2).flatten(1)
        x = self.embed(words) * math.sqrt(D)
        return x + waves.to(x.dtype)

    def read(self, words: Tensor, present: Tensor | None = None) -> Tensor:
        """(B, N) -> (B, N, D). `present` (B, N) is false where a shorter sequence is filled up."""
        x = self.place(words)
        for layer in self.encoder:
            x = layer(x, None if present is None else padding_mask(present))
        return x

    def write(self, words: Tensor, memory: Tensor, present: Tensor | None = None) -> Tensor:
        """Scores of the word after each of `words`, from it and those before: (B, M), (B, N, D) -> (B, M, V)."""
        x = self.place(words)
        for layer in self.decoder:
            x = layer(x, memory, None if present is None else padding_mask(present))
        return x @ self.embed.weight.T

    def forward(self, read: Tensor, written: Tensor, present: Tensor | None = None) -> Tensor:
        """(B, N), (B, M) -> (B, M, V)"""
        return self.write(written, self.read(read, present), present)
