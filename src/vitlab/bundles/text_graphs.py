"""Graphs of models of images and texts.

B images, C channels, S image_size, L layers, h heads, d head width
"""

import torch
from torch import Tensor

from vitlab.bundles.graph import Graph
from vitlab.models import EncoderDecoder, ImageTextModel, SingleStream
from vitlab.models.tensor_functions import DecoderStep, ImageTower, Reader, Stream, TextTower, Writer


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
