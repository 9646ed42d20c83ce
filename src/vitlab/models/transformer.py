"""Where ViT comes from: the Transformer, an encoder and a decoder (Vaswani et al., 2017, arXiv:1706.03762).

ViT is its encoder with the norms before attention and MLP, and patches for words. A decoder adds two things: a mask
that hides what is still to be written, and attention to what was read. To be read beside vit.py.

B batch, N words read, M words written, D embed_dim, V words in the vocabulary, L layers, h heads
"""

import torch
from torch import Tensor

from vitlab.layers import EncoderBlock, NoCache, PreNormEncoderBlock, padding_mask
from vitlab.models.attention_weights import record_attention
from vitlab.models.decoder import Decoder
from vitlab.models.encoder_decoder import EncoderDecoder, EncoderOutput
from vitlab.models.options import accept_options
from vitlab.models.text_module import TextModule, TextOptions


class TextEncoder(TextModule):
    """Words (B, N), numbers below `vocab_size`, at most `max_length` -> what they mean together (B, N, D): figure 1,
    left. With `causal` each word sees only those before it. Raises ValueError for sizes that do not fit together, and
    for an unknown name."""

    @accept_options(TextOptions)
    def __init__(self, options: TextOptions):
        kind = PreNormEncoderBlock if options.norm_first else EncoderBlock

        def build_block() -> EncoderBlock:
            return kind(attention=options.build_attention(), mlp=options.build_mlp(), norm=options.build_norm)

        super().__init__(options, build_block)
        self.initialize()

    def forward(self, words: Tensor, present: Tensor | None = None) -> Tensor:
        """`present` (B, N) is false where a shorter sequence is filled up; a causal encoder does not ask.
        Raises ValueError for more words than max_length."""
        if words.shape[1] > self.max_length:
            raise ValueError(f"{words.shape[1]} words are more than the encoder's max_length {self.max_length}")
        x, sequence = self.embed(words), NoCache(present)
        for block in self.blocks:
            x = block(x, sequence)
        return self.norm(x)

    @torch.no_grad()
    def attention_maps(self, words: Tensor, present: Tensor | None = None) -> Tensor:
        """Compute how much each word looks at each other one, in each layer. -> (B, L, h, N, N)"""
        with record_attention(self.blocks) as found:
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
                f"decoder.memory_dim is {decoder.memory_dim}, but the encoder's embed_dim is {encoder.embed_dim}; make "
                "them equal"
            )
        self.encoder, self.decoder = encoder, decoder
        if shared_embedding:
            ours, theirs = (list(part.embed.tokens.weight.shape) for part in (encoder, decoder))
            if ours != theirs:
                raise ValueError(
                    f"shared_embedding: the encoder's embedding has the shape {ours}, but the decoder's {theirs}; make "
                    "them equal"
                )
            encoder.embed.tokens.weight = decoder.embed.tokens.weight

    def read(self, words: Tensor, present: Tensor | None = None) -> EncoderOutput:
        """(B, N) -> (B, N, D). `present` (B, N) is false where a shorter sequence is filled up."""
        return EncoderOutput(self.encoder(words, present), None if present is None else padding_mask(present))

    def forward(
        self, written: Tensor, words: Tensor, present: Tensor | None = None, written_present: Tensor | None = None
    ) -> Tensor:
        """(B, M), and what `read` takes -> (B, M, V). `written_present` (B, M) is false where a text is only filled up,
        behind its end; a causal decoder does not ask."""
        return self.decoder(written, *self.read(words, present), written_present)
