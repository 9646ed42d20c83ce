"""Graphs of models that read and write texts: an encoder that reads an image once and a step that writes one token, a
stream of both, two towers.

B images, C channels, S image_size, N tokens of an image, Q tokens of a question, M tokens of a text, P tokens before, L
layers, h heads, d head width, V vocab_size, F features
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.bundles.graph import Graph
from vitlab.layers import Memory, MemoryAttention, NoCache
from vitlab.models import EncoderDecoder, ImageTextModel, SingleStream

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


def reader_graphs(model: EncoderDecoder, pixels: Tensor) -> list[Graph]:
    """Make the graphs of an encoder and a decoder: `encoder`, and `decoder`, a step or, not causal, all of a text."""
    encoder = Graph("encoder", Reader(model), {"pixels": pixels}, ["memory"], {"pixels": {0: "batch"}})
    memory, B = encoder.compute({"pixels": pixels})["memory"], len(pixels)
    if not model.decoder.causal:
        inputs = {"written": draw_tokens(model.vocab_size, B, 3), "memory": memory}
        axes = {"written": {0: "batch", 1: "length"}, "memory": {2: "batch"}}
        return [encoder, Graph("decoder", Writer(model), inputs, ["logits"], axes)]
    L, _, _, h, _, d = memory.shape
    inputs = {"token": draw_tokens(model.vocab_size, B, 1), "memory": memory, "past": torch.randn(L, 2, B, h, 3, d)}
    axes = {"token": {0: "batch"}, "memory": {2: "batch"}, "past": {2: "batch", 4: "past"}}
    return [encoder, Graph("decoder", DecoderStep(model), inputs, ["logits", "present"], axes)]


def stream_graphs(model: SingleStream, pixels: Tensor) -> list[Graph]:
    """Make the graph of a single stream, which reads all of it anew with each token."""
    B = len(pixels)
    inputs = {
        "pixels": pixels,
        "question": draw_tokens(model.vocab_size, B, model.question_length),
        "written": draw_tokens(model.vocab_size, B, 3),
    }
    axes = {"pixels": {0: "batch"}, "question": {0: "batch"}, "written": {0: "batch", 1: "length"}}
    return [Graph("stream", Stream(model), inputs, ["logits"], axes)]


def tower_graphs(model: ImageTextModel, pixels: Tensor) -> list[Graph]:
    """Make the graphs of both towers of a contrastive model."""
    B, M = len(pixels), model.text.max_length
    words = {
        "words": draw_tokens(model.text.embed.tokens.num_embeddings, B, M),
        "lengths": torch.randint(1, M + 1, (B,), generator=torch.Generator().manual_seed(0)),
    }
    axes = {"words": {0: "batch"}, "lengths": {0: "batch"}}
    return [
        Graph("images", ImageTower(model), {"pixels": pixels}, ["features"], {"pixels": {0: "batch"}}),
        Graph("texts", TextTower(model), words, ["features", "scale", "bias"], axes),
    ]


def draw_tokens(vocab_size: int, count: int, length: int) -> Tensor:
    """Draw tokens, always the same. -> (count, length)"""
    return torch.randint(vocab_size, (count, length), generator=torch.Generator().manual_seed(0))
