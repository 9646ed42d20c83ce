"""An encoder that reads and a decoder that writes (Sutskever et al., 2014, arXiv:1409.3215; with attention between them
Bahdanau et al., 2014, arXiv:1409.0473): what models share, whatever they read.

B batch, N tokens of what is read, E their width, M tokens of a text, V vocab_size
"""

from typing import Any, NamedTuple

from torch import Tensor, nn

from vitlab.models.decoder import AttentionMaps, Decoder
from vitlab.models.text_state import CachedDecoderState, DecoderState


class EncoderOutput(NamedTuple):
    """What an encoder has read, (B, N, E), and an `attn_mask`, as in `Attention`, that hides what only fills it up."""

    tokens: Tensor
    attn_mask: Tensor | None


class EncoderDecoder(nn.Module):
    """A kind says how it reads: `read` gives the memory of its inputs.

    Parameters of the encoder come before the decoder's in layers: 0 its embeddings, then the blocks of both one after
    the other, and what follows the last.
    """

    encoder: Any
    decoder: Decoder

    def read(self, *inputs: Any) -> EncoderOutput:
        raise NotImplementedError

    def begin_text(self, *inputs: Any, cached: bool = True) -> DecoderState:
        """Begin a text of each input. Not `cached`, or with a decoder that is not causal, whose earlier tokens look at
        later ones, all of it is computed anew with each token."""
        kind = CachedDecoderState if cached and self.decoder.causal else DecoderState
        return kind(self.decoder, *self.read(*inputs))

    def attention_maps(self, written: Tensor, *inputs: Any) -> AttentionMaps:
        """Compute where the decoder looks while it writes what comes after each token of `written` (B, M)."""
        return self.decoder.attention_maps(written, *self.read(*inputs))

    @property
    def vocab_size(self) -> int:
        return self.decoder.head.out_features

    @property
    def max_length(self) -> int:
        """The most tokens that a text has, its end among them."""
        return self.decoder.max_length

    @property
    def depth(self) -> int:
        return self.encoder.depth + self.decoder.depth

    def heads(self) -> list[nn.Linear]:
        return self.decoder.heads()

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: biases, norms, tokens and position embeddings."""
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        return {f"{key}.{name}" for key, part in parts.items() for name in part.no_weight_decay()}

    def get_layer_id(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the encoder's embeddings, 1 to depth the blocks of the encoder and then
        the decoder's, depth+1 what follows them. The encoder's last norm and the decoder's embeddings are of the layer
        between both."""
        part, _, within = name.partition(".")
        if part == "encoder":
            return min(self.encoder.get_layer_id(within), self.encoder.depth)
        return self.encoder.depth + self.decoder.get_layer_id(within)
