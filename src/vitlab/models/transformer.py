"""Where ViT comes from: the Transformer, an encoder and a decoder (Vaswani et al., 2017, arXiv:1706.03762).

ViT is its encoder with the norms before attention and MLP, and patches for words. A decoder adds two things: a mask
that hides what is still to be written, and attention to what was read. To be read beside vit.py.

B batch, N words read, M words written, D embed_dim, V words in the vocabulary, L layers, h heads
"""

import torch
from torch import Tensor, nn

from vitlab.layers import EncoderBlock, PreNormEncoderBlock, Whole, padding_mask
from vitlab.models.attention_weights import noting_looks
from vitlab.models.decoder import Decoder
from vitlab.models.encoder_decoder import EncoderDecoder, Read
from vitlab.models.text_parts import TextModule, TextParts
from vitlab.ranges import Count, Depth, Length, Positive, Rate, Unsigned, VocabSize, Width


class TextEncoder(TextModule):
    """Words (B, N), numbers below `vocab_size`, at most `max_length` -> what they mean together (B, N, D): figure 1,
    left. Options are those of `Decoder`;
    `causal`: each word looks only at those before it, as in a text that is written."""

    def __init__(
        self,
        *,
        vocab_size: VocabSize,
        max_length: Length,
        embed_dim: Width,
        depth: Depth,
        num_heads: Count,
        mlp: str,
        mlp_ratio: Positive | None,
        mlp_dim: Width | None,
        norm: str,
        norm_eps: Unsigned,
        norm_first: bool,
        position: str,
        scale_embedding: bool,
        embed_norm: bool,
        causal: bool,
        scaled_attention: bool,
        initialization: str,
        drop_rate: Rate,
        attn_drop_rate: Rate,
    ):
        super().__init__()
        parts = TextParts(
            vocab_size=vocab_size,
            max_length=max_length,
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            mlp=mlp,
            mlp_ratio=mlp_ratio,
            mlp_dim=mlp_dim,
            norm=norm,
            norm_eps=norm_eps,
            position=position,
            scale_embedding=scale_embedding,
            embed_norm=embed_norm,
            scaled_attention=scaled_attention,
            initialization=initialization,
            drop_rate=drop_rate,
            attn_drop_rate=attn_drop_rate,
        )
        self.max_length, self.embed_dim, self.depth = max_length, embed_dim, depth
        self.causal, self.scheme = causal, initialization
        attention = parts.causal_attention if causal else parts.attention
        block = PreNormEncoderBlock if norm_first else EncoderBlock
        self.embed = parts.embedding()
        self.blocks = nn.ModuleList(
            block(attention=attention(), mlp=parts.mlp(), norm=parts.norm) for _ in range(depth)
        )
        self.norm = parts.norm() if norm_first else nn.Identity()
        self.initialize()

    def forward(self, words: Tensor, present: Tensor | None = None) -> Tensor:
        """`present` (B, N) is false where a shorter sequence is filled up; a causal encoder does not ask.
        Raises ValueError for more words than max_length."""
        if words.shape[1] > self.max_length:
            raise ValueError(f"{words.shape[1]} words are more than the encoder's max_length {self.max_length}")
        x, sequence = self.embed(words), Whole(present)
        for block in self.blocks:
            x = block(x, sequence)
        return self.norm(x)

    @torch.no_grad()
    def looks(self, words: Tensor, present: Tensor | None = None) -> Tensor:
        """How much each word looks at each other one, in each layer. -> (B, L, h, N, N)"""
        with noting_looks(self.blocks) as found:
            self.forward(words, present)
        return torch.stack(list(found.values()), dim=1)


class Transformer(EncoderDecoder):
    """Words read (B, N), words written so far (B, M) -> logits of the word after each (B, M, V).

    With `shared_embedding` the encoder embeds by the decoder's rows, since both write in one language (section 3.4).
    Raises ValueError for parts that do not fit together.
    """

    encoder: TextEncoder

    def __init__(self, *, encoder: TextEncoder, decoder: Decoder, shared_embedding: bool):
        super().__init__()
        if decoder.memory_dim != encoder.embed_dim:
            raise ValueError(
                f"decoder.memory_dim is {decoder.memory_dim}, and the encoder's embed_dim {encoder.embed_dim}; give one"
            )
        self.encoder, self.decoder = encoder, decoder
        if shared_embedding:
            ours, theirs = (list(part.embed.tokens.weight.shape) for part in (encoder, decoder))
            if ours != theirs:
                raise ValueError(f"shared_embedding: the encoder embeds by {ours} numbers, and the decoder by {theirs}")
            encoder.embed.tokens.weight = decoder.embed.tokens.weight

    def read(self, words: Tensor, present: Tensor | None = None) -> Read:
        """(B, N) -> (B, N, D). `present` (B, N) is false where a shorter sequence is filled up."""
        return Read(self.encoder(words, present), None if present is None else padding_mask(present))

    def forward(
        self, written: Tensor, words: Tensor, present: Tensor | None = None, written_present: Tensor | None = None
    ) -> Tensor:
        """(B, M), and what `read` takes -> (B, M, V). `written_present` (B, M) is false where a text is only filled up,
        behind its end; a causal decoder does not ask."""
        return self.decoder(written, *self.read(words, present), written_present)
