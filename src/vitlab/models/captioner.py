"""Image to text: a Vision Transformer reads, a decoder writes (Li et al., 2021, arXiv:2109.10282, TrOCR, section 2).

B batch, C channels, H W image height and width, P patch_size, N patches, T tokens (prefix and patches), E the encoder's
width, M tokens of a text, V vocab_size
"""

from torch import Tensor, nn

from vitlab.layers import Grids, mask_padding
from vitlab.models.decoder import Decoder
from vitlab.models.encoder_decoder import EncoderDecoder, EncoderOutput
from vitlab.models.reading_encoder import require_encoder, take_heads_off
from vitlab.models.vit import VisionTransformer
from vitlab.ranges import Pixels


class Captioner(EncoderDecoder):
    """Images (B, C, H, W) or patches (B, N, C·P·P), and texts so far (B, M) -> logits of the token after each
    (B, M, V).

    The decoder looks at all tokens of the encoder behind its last norm, the class token among them; the encoder's heads
    are taken off. `patch_size` is the encoder's own. Raises ValueError for an encoder that is no Vision Transformer, or
    has other weights than its head's that no text trains, and for a decoder of another memory_dim than its width.
    """

    encoder: VisionTransformer

    def __init__(self, *, encoder: nn.Module, decoder: nn.Module, patch_size: Pixels | None):
        super().__init__()
        self.encoder = require_encoder(encoder, patch_size)
        self.decoder = require_decoder(decoder, self.encoder.head.in_features)
        take_heads_off(self.encoder)

    def read(self, x: Tensor, grid: Grids | None = None) -> EncoderOutput:
        """Images (B, C, H, W) or patches (B, N, C·P·P), and their grid where they have another one than the encoder was
        made for, or differ -> tokens (B, T, E), and a mask of what only fills up."""
        x, grid = self.encoder.embed(x, grid)
        mask = mask_padding(None, grid, self.encoder.num_prefix_tokens)
        x = self.encoder.fc_norm(self.encoder.encode(x, grid, mask))  # the last norm, wherever pooling puts it
        return EncoderOutput(x, mask)

    def forward(
        self, written: Tensor, x: Tensor, grid: Grids | None = None, written_present: Tensor | None = None
    ) -> Tensor:
        """(B, M), and what `read` takes -> (B, M, V). `written_present` (B, M) is false where a text is only filled up,
        behind its end; a causal decoder does not ask."""
        return self.decoder(written, *self.read(x, grid), written_present)

    def represent(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Encode images (B, C, H, W) or patches (B, N, C·P·P). -> (B, E)"""
        return self.encoder.represent(x, grid)


def require_decoder(decoder: nn.Module, width: int) -> Decoder:
    """Take a decoder that looks at an encoder of such a width. Raises ValueError for another."""
    if not isinstance(decoder, Decoder):
        raise ValueError(f"decoder is a {type(decoder).__name__}; a captioner needs a Decoder")
    if decoder.memory_dim != width:
        raise ValueError(
            f"decoder.memory_dim is {decoder.memory_dim}, but the encoder's embed_dim is {width}; make them equal"
        )
    return decoder
