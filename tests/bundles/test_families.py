"""Every family of models is exported, and its own runtime gives what torch gives, for any batch."""

from pathlib import Path

import pytest
import torch
from conftest import vit_options
from texts import OPTIONS, captioner, decoder
from texts import VARIANTS as DECODERS
from tiny import VARIANTS, randomized

from vitlab.bundles.formats import open_onnx, open_torch_export, write_onnx, write_torch_export
from vitlab.bundles.graph import Graph, Scorer
from vitlab.bundles.parts import Features
from vitlab.bundles.proof import check_graph
from vitlab.bundles.text_graphs import reader_graphs, stream_graphs, tower_graphs
from vitlab.models import (
    AskedCaptioner,
    DistilledVisionTransformer,
    ImageTextModel,
    MaskedAutoencoder,
    SelfDistilled,
    SingleStream,
    TextEncoder,
    VisionTransformer,
    small_resnet,
)
from vitlab.tasks.known_classes import KnownClasses

SMALL = {"image_size": 16, "depth": 2}
QUICK = ("plain",)
DOCS = Path(__file__).parents[2] / "docs"


def images(count):
    return torch.randn(count, 1, 16, 16, generator=torch.Generator().manual_seed(count))


def check(make, folder):
    """Export what `make(images)` lists in both forms, and compare each with torch at batches of 1, 3 and 7."""
    for graph, *others in zip(*(make(images(count)) for count in (2, 1, 3, 7)), strict=True):
        inputs = [other.inputs for other in others]
        write_onnx(graph, folder / "graph.onnx")
        check_graph(graph, inputs, open_onnx(folder / "graph.onnx"), "ONNX")
        write_torch_export(graph, folder / "graph.pt2")
        check_graph(graph, inputs, open_torch_export(folder / "graph.pt2", graph.outputs), "torch.export")


def score(model, known=None):
    scorer = Scorer(model, lambda logits: (logits / 0.5).softmax(dim=1), known)
    return lambda pixels: [Graph("model", scorer, {"pixels": pixels}, scorer.outputs, {"pixels": {0: "batch"}})]


def features(model):
    return lambda pixels: [Graph("model", Features(model), {"pixels": pixels}, ["features"], {"pixels": {0: "batch"}})]


@pytest.mark.parametrize("variant", [pytest.param(v, marks=() if v in QUICK else pytest.mark.slow) for v in VARIANTS])
def test_a_vision_transformer(variant, tmp_path):
    check(score(randomized(VisionTransformer(**vit_options(**SMALL | VARIANTS[variant])))), tmp_path)


@pytest.mark.slow
@pytest.mark.ci
def test_one_that_knows_its_classes(tmp_path):
    known = KnownClasses.fit(torch.randn(80, 32) + 3, torch.arange(80) % 10).accept(torch.randn(80, 32) + 3, 0.05)
    model = randomized(VisionTransformer(**vit_options(**SMALL)))
    check(score(model, known), tmp_path)
    (graph,) = score(model, known)(images(3))
    expected = known.compute_novelty(model.represent(images(3)))
    torch.testing.assert_close(graph.compute({"pixels": images(3)})["novelty"], expected)


@pytest.mark.slow
def test_a_distilled_vision_transformer(tmp_path):
    check(score(randomized(DistilledVisionTransformer(**vit_options(**SMALL)))), tmp_path)


@pytest.mark.slow
def test_a_residual_network(tmp_path):
    model = small_resnet(depth=8, width=4, patch_size=None, in_chans=1, num_classes=10)
    check(score(randomized(model, 0.1)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked", "self_distilled"])
def test_models_without_classes(kind, tmp_path):
    encoder = VisionTransformer(**vit_options(**SMALL))
    if kind == "masked":
        sizes = {"patch_size": 4, "decoder_dim": 24, "decoder_depth": 1, "decoder_heads": 2}
        model = MaskedAutoencoder(encoder=encoder, **sizes)
    else:
        model = SelfDistilled(encoder=encoder, patch_size=4, hidden_dim=24, bottleneck_dim=8, num_prototypes=12)
    check(features(randomized(model)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("variant", DECODERS)
def test_an_encoder_that_reads_and_a_decoder_that_writes(variant, tmp_path):
    model = randomized(captioner(encoder=SMALL, **{k: v for k, v in DECODERS[variant].items() if k != "memory_dim"}))
    check(lambda pixels: reader_graphs(model, pixels), tmp_path)


@pytest.mark.slow
def test_a_text_is_written_step_by_step_from_an_empty_past(tmp_path):
    model = randomized(captioner(encoder=SMALL))
    for graph in reader_graphs(model, images(2)):
        write_onnx(graph, tmp_path / f"{graph.name}.onnx")
    read, step = (open_onnx(tmp_path / f"{name}.onnx") for name in ("encoder", "decoder"))
    memory = read({"pixels": images(3)})["memory"]
    past = torch.empty(memory.shape[0], 2, 3, memory.shape[3], 0, memory.shape[5])
    state = model.begin_text(images(3))
    state.reserve(6)
    token = torch.ones(3, dtype=torch.long)
    for _ in range(6):
        found = step({"token": token[:, None], "memory": memory, "past": past})
        with torch.no_grad():
            expected = state.next_logits(token)
        torch.testing.assert_close(found["logits"], expected, atol=1e-4, rtol=1e-4)
        token, past = expected.argmax(dim=1), found["present"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["asked", "single_stream"])
def test_models_that_are_asked(kind, tmp_path):
    if kind == "asked":
        encoder = VisionTransformer(**vit_options(**SMALL))
        model = AskedCaptioner(encoder=encoder, decoder=decoder(memory_dim=32), patch_size=4, question_length=4)
        check(lambda pixels: reader_graphs(randomized(model), pixels), tmp_path)
    else:
        encoder = VisionTransformer(**vit_options(**SMALL))
        model = SingleStream(encoder=encoder, vocab_size=11, question_length=4, max_length=5, patch_size=4)
        check(lambda pixels: stream_graphs(randomized(model), pixels), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("text_pool", ["end", "last"])
def test_both_towers_of_a_contrastive_model(text_pool, tmp_path):
    text = TextEncoder(causal=text_pool == "end", **OPTIONS)
    sizes = {"patch_size": 4, "feature_dim": 24, "project_images": True, "text_bias": False, "scale": 10.0}
    encoder = VisionTransformer(**vit_options(**SMALL))
    bias = None if text_pool == "end" else -1.0
    model = ImageTextModel(encoder=encoder, text=text, text_pool=text_pool, bias=bias, **sizes)
    check(lambda pixels: tower_graphs(randomized(model), pixels), tmp_path)


ROWS = {  # of the table in docs/product.md: what stands there, and the tests that prove it
    "Vision Transformer: all positions, poolings, norms, MLPs and stems": test_a_vision_transformer,
    "distilled Vision Transformer": test_a_distilled_vision_transformer,
    "ResNet": test_a_residual_network,
    "masked autoencoder, self-distilled model": test_models_without_classes,
    "reader of images: encoder and cached decoder": test_an_encoder_that_reads_and_a_decoder_that_writes,
    "reader that is asked a question": test_models_that_are_asked,
    "single stream of image, question and answer": test_models_that_are_asked,
    "contrastive model of images and texts": test_both_towers_of_a_contrastive_model,
}


def test_the_documented_table_names_the_models_that_are_tested():
    text = (DOCS / "product.md").read_text(encoding="utf-8")
    table = text.split("| model | graphs |")[1].split("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table] == list(ROWS)
