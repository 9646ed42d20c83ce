"""The classes of transformers that see images: what becomes of a tiny one with random weights.

python tests/weights/transformers_classes.py writes the table of them, transformers_classes.csv.
"""

import csv
import json
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
import transformers
from foreign import images, loaded, randomized
from kinds import KNOWN, inputs
from safetensors.torch import save_file

from vitlab.errors import CheckpointError
from vitlab.layers import POOLS
from vitlab.models import VisionTransformer
from vitlab.weights.huggingface import READS, read_config

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("class", "kind", "outcome", "why")
SIGHT = re.compile(
    r"(For(ImageClassification(WithTeacher)?|MaskedImageModeling)|Vision(Model(WithProjection)?|Transformer)|Backbone)$"
)
OURS = {  # what these are called here, where it is not the name of their kind
    "SiglipForImageClassification": {"pool": "mean", "fc_norm": False},
    "Siglip2ForImageClassification": {"pool": "mean", "fc_norm": False},
    "ViTModel": {"representation_dim": 32},
    "DeiTModel": {"representation_dim": 32, "kind": VisionTransformer, "num_registers": 1},
    "DeiTForImageClassification": {"kind": VisionTransformer, "num_registers": 1},
}
SMALL = {
    **dict.fromkeys(("hidden_size", "embed_dim", "image_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "depth", "num_attention_heads", "num_heads"), 2),
    "intermediate_size": 64,
    "patch_size": 4,
}
LARGE = 50_000_000  # parameters: of a larger one, the config alone is read
CLOSE = 1e-4  # of the largest logit or feature


def names() -> list[str]:
    """All that are exported, without importing them."""
    return sorted({name for name in dir(transformers) if SIGHT.search(name) and not name.startswith("Auto")} | {*READS})


def verdict(name: str, kind: str) -> tuple[str, str]:
    """What the rule says of a class, from its config alone."""
    if kind == "timm_wrapper":
        return "equal", ""  # of a Vision Transformer; timm's own tables tell of each
    try:
        pool = read_config({"model_type": kind, "architectures": [name]}, "it").facts.get("pool")
    except CheckpointError as error:
        return "refused", reason_of(error)
    if pool is None:
        return "features", ""
    return ("equal", "") if pool in POOLS else ("refused", f"it reads {pool}")


def reason_of(error: CheckpointError) -> str:
    found = re.search(r"(kind '[^']*'|it reads .*?)(, which is not known|, and the model's)", str(error))
    assert found, str(error)
    return found[1]


def fate(name: str, folder: Path) -> tuple[str, str, str]:
    """Its kind; equal (logits, or what is pooled), features (what no head reads), refused or different; and why."""
    kind, model = built(name, folder)
    options = KNOWN[kind][2] | OURS.get(name, {}) if kind in KNOWN else {}
    options = {"kind": VisionTransformer} | options
    try:
        ours, report = loaded(folder, **options)
    except CheckpointError as error:
        reason = reason_of(CheckpointError(str(error).replace(str(folder), "it")))
        if kind in KNOWN:  # all but the head is taken
            ours, _ = loaded(folder, head=False, **options)
            assert relative(tokens(model, kind), ours.eval().forward_features(images())) < CLOSE
        return kind, "refused", reason
    with torch.inference_mode():
        outcome, expected, found = compared(name, kind, model, ours.eval())
    difference = relative(expected, found)
    anew = {entry.tensor for entry in report.entries if entry.status == "initialised anew"}
    assert outcome == "features" or anew <= {"head.weight", "head.bias"}, anew
    return kind, outcome if difference < CLOSE else "different", "" if difference < CLOSE else f"{difference:.1e}"


def built(name, folder):
    """Its kind, and a small one, random, whose files are in the folder; of a class that takes no such sizes, there is
    only a config.json."""
    made = getattr(transformers, name)
    kind = made.config_class.model_type
    if kind in KNOWN:
        more = {"projection_dim": 7} if "WithProjection" in name else {"encoder_stride": 4} if "Masked" in name else {}
        return kind, written(made, made.config_class(**KNOWN[kind][0] | more, num_labels=7), folder)
    if kind == "timm_wrapper":
        sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2}
        config = made.config_class(architecture="vit_base_patch16_224", model_args=sizes, num_labels=7)
        return kind, written(made, config, folder)
    with suppress(Exception):  # whatever a class does with sizes that are not its own
        shrink(config := made.config_class())
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in made(config).parameters())
        if size < LARGE:
            return kind, written(made, config, folder)
    save_file({"embeddings.patch_embeddings.projection.weight": torch.ones(1)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "architectures": [name]}))
    return kind, None


def written(made, config, folder):
    model = randomized(made(config))
    model.save_pretrained(folder)
    return model


def shrink(config):
    for key, value in SMALL.items():
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, value)
    for key in ("vision_config", "text_config", "backbone_config"):
        if hasattr(getattr(config, key, None), "to_dict"):
            shrink(getattr(config, key))


def compared(name, kind, model, ours):
    """The outcome if both are equal, what theirs gives, and ours."""
    given = inputs(kind)
    if name in ("SiglipModel", "Siglip2Model"):
        return "equal", model.vision_model(**given).pooler_output, ours.represent(images())
    if name == "CLIPModel":
        return "equal", model.get_image_features(**given).pooler_output, ours(images())
    out = model(**given)
    for key in ("logits", "image_embeds"):
        if getattr(out, key, None) is not None and READS.get(name, "head"):
            return "equal", out[key], ours(images())
    if READS.get(name) is not None:
        return "equal", out.pooler_output, ours.represent(images())
    if "feature_maps" in out:
        patches = ours.forward_features(images())[:, ours.num_prefix_tokens :]
        return "features", out.feature_maps[-1].flatten(2).transpose(1, 2), patches
    return "features", tokens(model, kind), ours.forward_features(images())


def tokens(model, kind):
    """The last tokens behind the last norm."""
    base = getattr(model, "vision_model", model.base_model)
    with torch.inference_mode():
        found = base(**inputs(kind)).last_hidden_state
        return base.post_layernorm(found) if kind.startswith("clip") else found


def relative(expected, found):
    assert expected.shape == found.shape
    assert expected.std() > 0.01
    return ((found - expected).abs().max() / expected.abs().max()).item()


def rows():
    for name in names():
        with tempfile.TemporaryDirectory() as folder:
            yield name, *fate(name, Path(folder))


def read_table() -> dict[str, tuple[str, str, str]]:
    with open(TABLE, newline="") as file:
        return {name: (kind, outcome, why) for name, kind, outcome, why in list(csv.reader(file))[1:]}


if __name__ == "__main__":
    found = list(rows())
    with open(TABLE, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *found])
    print(TABLE, file=sys.stderr)
