"""Write the page: what is traced of some images, packed, between the words of each stage.

C channels, H W image height and width, P patch_size, R rows (tokens whose vectors are kept), N patches, T tokens, D
embed_dim, L layers, K classes, S steps of a curve
"""

import json
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import vitlab
from vitlab.explaining.facts import list_facts, name_prefix
from vitlab.explaining.forward_trace import compare_positions, refuse_model, trace, trace_evidence
from vitlab.explaining.packing import BYTES, choose_rows, encode, pack
from vitlab.explaining.stages import Stage, describe_stages
from vitlab.explaining.writing import Writer, Writing, trace_writing
from vitlab.models import VisionTransformer
from vitlab.views import eval_mode
from vitlab.views.faithfulness import measure_faithfulness, measure_random

FILTERS = 12  # of the projection, those with the largest weights
CLASSES = 10  # of each image, the likeliest
OF_ROWS = {"embedded": 0, "position": 0, "stem": 0, "length": 1, **dict.fromkeys("qkv", 2), "score": 2, "output": 2}
OF_ROWS |= {"bias": 2}  # dimension of the tokens in what is kept only for rows


class GivenImage(NamedTuple):
    """An image: its name, its pixels uint8 (C, H, W), and the same normalised (1, C, H, W)."""

    name: str
    pixels: Tensor
    inputs: Tensor


class Explained(NamedTuple):
    """What the page is about: the name of the run, its model, the names of its classes, the function that turns logits
    (B, K) into probabilities, and mean and std of pixels from 0 to 1. There are no classes with a `writer`, whose
    encoder the model is."""

    name: str
    model: VisionTransformer
    classes: Sequence[str]
    probabilities: Callable[[Tensor], Tensor]
    temperature: float
    mean: Sequence[float]
    std: Sequence[float]
    writer: Writer | None = None


def build_page(given: Explained, images: Sequence[GivenImage], most_bytes: float) -> str:
    """Build the page of images of one size in HTML. Raises ValueError for a model that it cannot explain, for numbers
    that are not finite, and if images and model do not fit into `most_bytes`."""
    if why := refuse_model(given.model):
        raise ValueError(f"the page explains a Vision Transformer that reads patches, but of this one {why}")
    writer = given.writer and given.writer.model
    facts = list_facts(given.model, images[0].pixels.shape[1:], writer)
    rows = keep_rows(given, facts, images, most_bytes)
    traced = [trace_image(given, image, rows) for image in images]
    evidence = all("evidence" in one["arrays"] for one in traced)
    function = getattr(given.probabilities, "__func__", given.probabilities)  # whose source is quoted
    stages = list(describe_stages(given.model, facts, function, evidence, writer))
    content = {**describe_model(given, facts, rows), "images": traced}
    return fill_template(given, stages, content)


def keep_rows(given: Explained, facts: dict[str, int], images: Sequence[GivenImage], most_bytes: float) -> list[int]:
    """Choose the tokens whose vectors the page keeps. Raises ValueError if not even one patch fits."""
    L, H, T, D = facts["layers"], facts["heads"], facts["tokens"], facts["dim"]
    block: Any = given.model.blocks[0]
    biased = int(block.attn.rel_pos.bias(None, None) is not None)
    row = BYTES * (L * (4 * D + (1 + biased) * H * T + 5) + 3 * D + 2 * facts["patches"] / len(images))
    fixed = BYTES * facts["patches"] * (2 * FILTERS + 5) + images[0].pixels.numel() * 4 / 3
    if given.writer is not None:
        decoder = given.writer.model.decoder
        fixed += BYTES * facts["patches"] * decoder.depth * decoder.max_length
    shared = 100_000 + BYTES * FILTERS * facts["patch_numbers"]  # code, words, filters
    rows = choose_rows(facts["prefix"], T, row, (most_bytes - shared) / len(images) - fixed)
    if not rows:
        raise ValueError(
            f"{len(images)} image(s) of {T} tokens in {L} layers do not fit into {most_bytes / 1e6:g} MB; take fewer "
            "images with num_images=1, or a smaller model"
        )
    return rows


def describe_model(given: Explained, facts: dict[str, int], rows: list[int]) -> dict[str, Any]:
    """Collect what all images share: facts, names, and the filters of the projection."""
    model = given.model
    proj: Any = model.patch_embed.proj
    channels, grid = choose_filters(model), list_grid(facts)
    similarity = compare_positions(model, grid)
    arrays = {"filter": proj.weight.flatten(1)[channels]}
    if proj.bias is not None:
        arrays["filter_bias"] = proj.bias[channels]
    prefix = model.num_prefix_tokens
    if similarity is not None:
        arrays["similarity"] = similarity[[row - prefix for row in rows[prefix:]]]
    return {
        "facts": facts,
        "grid": list(grid),
        "prefix": name_prefix(model),
        "rows": rows,
        "channels": channels,
        "added": bool(model.pos_embed.numel()),
        "normed": not isinstance(model.norm_pre, nn.Identity),
        "mean": list(given.mean),
        "std": list(given.std),
        "temperature": given.temperature,
        "arrays": {name: pack(value) for name, value in arrays.items()},
    }


def list_grid(facts: dict[str, int]) -> tuple[int, int]:
    """Count the rows and columns of patches."""
    return facts["height"] // facts["patch_size"], facts["width"] // facts["patch_size"]


def choose_filters(model: VisionTransformer) -> list[int]:
    """Choose the filters of the projection with the largest weights."""
    proj: Any = model.patch_embed.proj
    sizes = proj.weight.flatten(1).norm(dim=1)
    chosen: list[int] = sizes.topk(min(FILTERS, len(sizes))).indices.tolist()
    return chosen


def trace_image(given: Explained, image: GivenImage, rows: list[int]) -> dict[str, Any]:
    """Trace one image, and pack what the page shows of it."""
    found = trace(given.model, image.inputs)
    kept = {
        "linear": found["linear"][:, choose_filters(given.model)],
        "convolution": found["convolution"][:, choose_filters(given.model)],
    }
    if given.writer is None:
        answer, arrays = trace_answer(given, image, found)
    else:
        answer, arrays = describe_writing(trace_writing(given.writer, image.inputs))
    kept |= arrays
    difference = (found["linear"] - found["convolution"]).abs().max().item()
    kept |= {name: found[name].index_select(dim, torch.tensor(rows)) for name, dim in OF_ROWS.items() if name in found}
    return {
        "name": image.name,
        "pixels": encode(image.pixels.numpy()),
        **answer,
        "difference": difference,
        "arrays": {name: pack(value) for name, value in kept.items()},
    }


def trace_answer(
    given: Explained, image: GivenImage, found: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Give the likeliest classes, and arrays: what the head reads after each block, and what speaks for a class."""
    lens = found["lens"]
    classes = lens[-1].topk(min(CLASSES, lens.shape[1])).indices.tolist()
    arrays = {
        "lens": given.probabilities(lens)[:, classes],
        "logit": lens[-1:, classes],
        "rollout": found["rollout"][None],
    }
    evidence = trace_evidence(given.model, image.inputs, classes[:2])
    if evidence is not None:
        arrays |= {"evidence": evidence, **measure_maps(given, image, [*evidence, found["rollout"]], classes)}
    arrays |= {"pooling": found["pooling"][None]} if "pooling" in found else {}
    return {"classes": [given.classes[k] for k in classes]}, arrays


def describe_writing(writing: Writing) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Give the written tokens and those to choose from, and arrays."""
    answer = {"classes": [], "text": writing.text, "written": writing.tokens, "candidates": writing.candidates}
    return answer | {"probability": writing.probability}, {"said": writing.said, "looked": writing.looked}


def measure_maps(given: Explained, image: GivenImage, maps: Sequence[Tensor], classes: list[int]) -> dict[str, Tensor]:
    """Measure how faithful heat maps (N,) are to the likeliest classes, and the last one, rollout, to the first of
    them: their curves of deletion and insertion, each (maps, S + 1), and those of patches in random orders (maps,
    orders, S + 1)."""
    asked = [*classes[: len(maps) - 1], classes[0]]

    def predict(pixels: Tensor) -> Tensor:
        return given.probabilities(given.model(pixels))[:, asked]

    with eval_mode(given.model):
        grid = given.model.patch_embed.grid
        random = measure_random(predict, image.inputs, grid)
        measured = [measure_faithfulness(predict, image.inputs, heat, grid) for heat in maps]
    return {
        "deletion": torch.stack([one.deletion[:, n] for n, one in enumerate(measured)]),
        "insertion": torch.stack([one.insertion[:, n] for n, one in enumerate(measured)]),
        "random_deletion": torch.stack([one.deletion.T for one in random], dim=1),
        "random_insertion": torch.stack([one.insertion.T for one in random], dim=1),
    }


def fill_template(given: Explained, stages: Sequence[Stage], content: dict[str, Any]) -> str:
    """Put words, numbers, style and script into the template; nothing is loaded from elsewhere."""
    folder = files("vitlab.explaining")
    parts = {
        "name": escape(given.name),
        "version": escape(vitlab.__version__),
        "style": folder.joinpath("page.css").read_text(encoding="utf-8"),
        "script": folder.joinpath("page.js").read_text(encoding="utf-8"),
        "contents": "\n".join(f'<li><a href="#{one.view}">{one.title}</a></li>' for one in stages),
        "stages": "\n".join(format_stage(one) for one in stages),
        "data": json.dumps(content, separators=(",", ":")).replace("<", "\\u003c"),
    }
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def format_stage(stage: Stage) -> str:
    """Write the section of a stage."""
    lines = "\n".join(
        f'<div><span class="where">{escape(line.file)}:{line.number}</span><code>{escape(line.text)}</code></div>'
        for line in stage.lines
    )
    return f"""<section id="{stage.view}">
<div class="words"><h2>{stage.title}</h2>
<p>{stage.text}</p>
<p class="equation">{stage.equation}</p>
<div class="source">{lines}</div></div>
<div class="view" data-view="{stage.view}"></div>
</section>"""
