"""Models of images and texts as functions of tensors alone, for graphs that are exported: an encoder that reads once, a
step that writes one token, a stream of both, two towers.

B images, C channels, S image_size, N tokens of an image, Q tokens of a question, M tokens of a text, P tokens before, L
layers, h heads, d head width, V vocab_size, F features
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.layers import Memory, MemoryAttention, NoCache
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.image_text_model import ImageTextModel
from vitlab.models.single_stream import SingleStream

KeysAndValues = tuple[Tensor, Tensor]


class Reader(nn.Module):
    """Normalised images (B, C, S, S) -> keys and values that each layer of the decoder makes of them,
    (L, 2, B, h, N, d)."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model
        self.attentions = [module for module in model.decoder.modules() if isinstance(module, MemoryAttention)]

    def forward(self, pixels: Tensor) -> Tensor:
        tokens, _ = self.model.read(pixels)
        layers = [attention.keys_and_values(tokens) for attention in self.attentions]
        return torch.stack([torch.stack(layer) for layer in layers])


class GivenMemory(Memory):
    """A memory of which a layer's keys and values (2, B, h, N, d) are given."""

    def __init__(self, given: Tensor):
        self.given, self.attn_mask = given, None

    def keys_and_values(self, make: Callable[[Tensor], KeysAndValues]) -> KeysAndValues:
        return self.given[0], self.given[1]


class GivenPast(NoCache):
    """A text of which a layer's keys and values (2, B, h, P, d) of the tokens before are given."""

    def __init__(self, given: Tensor):
        super().__init__()
        self.given, self.length = given, given.shape[3]

    def extend(self, k: Tensor, v: Tensor) -> KeysAndValues:
        self.given = torch.cat([self.given, torch.stack([k, v])], dim=3)
        return self.given[0], self.given[1]


class DecoderStep(nn.Module):
    """The last token of each text (B, 1), what `Reader` gives, and keys and values of the tokens before
    (L, 2, B, h, P, d) -> logits of the next token (B, V), and keys and values with this token's (L, 2, B, h, P+1, d).

    A text begins with the token that begins texts and an empty past; a question comes first, a token at a time.
    """

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, token: Tensor, memory: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        pasts = [GivenPast(layer) for layer in past]
        logits = self.decoder.extend(token, pasts, [GivenMemory(layer) for layer in memory])
        return logits[:, -1], torch.stack([layer.given for layer in pasts])


class Writer(nn.Module):
    """Texts so far (B, M) and what `Reader` gives -> logits of the token after each (B, M, V), for a decoder that is
    not causal, whose earlier tokens look at later ones."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, written: Tensor, memory: Tensor) -> Any:
        given = [GivenMemory(layer) for layer in memory]
        return self.decoder.extend(written, [NoCache()] * self.decoder.depth, given)


class Stream(nn.Module):
    """Normalised images (B, C, S, S), questions (B, Q), and answers so far (B, M) -> logits of the token after each
    (B, M, V)."""

    def __init__(self, model: SingleStream):
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor, question: Tensor, written: Tensor) -> Any:
        return self.model(written, question, pixels)


class ImageTower(nn.Module):
    """Normalised images (B, C, S, S) -> features of length 1 (B, F)."""

    def __init__(self, model: ImageTextModel):
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model.encode_images(pixels)


class TextTower(nn.Module):
    """Texts filled up to the model's length (B, M) and their lengths (B,) -> features of length 1 (B, F), and the scale
    and bias (1,) by which their cosines with images' become logits."""

    def __init__(self, model: ImageTextModel):
        super().__init__()
        self.model = model

    def forward(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        model = self.model
        return model.encode_texts(words, lengths), model.logit_scale.exp(), model.logit_bias + 0
