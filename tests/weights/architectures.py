"""Every architecture of timm that has patches, small and random: what becomes of its weights here."""

import json
import warnings
from functools import cache

import timm
import torch
from conftest import vit_options
from foreign import images, randomized
from safetensors.torch import save_file

from vitlab.errors import CheckpointError
from vitlab.layers import POOLS, POSITIONS
from vitlab.models import DistilledVisionTransformer, VisionTransformer
from vitlab.weights import load
from vitlab.weights.timm_names import read_facts

SMALL = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 7}
CLOSE = 1e-5  # of the largest logit


@cache
def names() -> list[str]:
    """By the modules of timm whose models have `patch_embed` and `blocks`."""
    modules = ("vision_transformer", "deit", "eva", "beit", "cait", "xcit", "naflexvit", "vision_transformer_relpos")
    modules += (
        "vision_transformer_sam",
        "vision_transformer_hybrid",
        "convit",
        "crossvit",
        "tnt",
        "twins",
        "visformer",
    )
    modules += (
        "swin_transformer",
        "swin_transformer_v2",
        "swin_transformer_v2_cr",
        "mvitv2",
        "pvt_v2",
        "hiera",
        "volo",
    )
    modules += ("pit", "nest", "levit", "davit", "hieradet_sam2")
    known = set(timm.list_modules())
    return sorted(name for module in modules if module in known for name in timm.list_models(module=module))


def sizes(name):
    return SMALL | ({"num_kv_heads": 2} if "sapiens2" in name else {})  # which has a number for each block


def small(name, **changes):
    """The architecture in small, its parameters random; None where its class takes no such sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return randomized(timm.create_model(name, **(sizes(name) | changes)))
        except Exception:  # whatever it does with sizes that are not its own
            return None


def options_of(model):
    """How the same model is called here, as far as there are words for it."""
    facts = read_facts(model, "it").facts
    block, width = model.blocks[0], model.embed_dim
    hidden = block.mlp.fc2.in_features if hasattr(block.mlp, "fc2") else 4 * width
    ls = getattr(block, "ls1", None)
    scaled = getattr(block, "gamma_1", None) is not None or (ls is not None and len(list(ls.parameters())) > 0)
    has = {part: len(list(getattr(model, part).parameters())) > 0 for part in ("fc_norm", "norm")}
    prefix = model.num_prefix_tokens
    registers = 0 if getattr(model, "reg_token", None) is None else model.reg_token.shape[1]
    rows = model.pos_embed.shape[1] if model.pos_embed is not None else 0
    changes = {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": width,
        "depth": 2,
        "mlp_ratio": None,
        "mlp_dim": hidden,
        "layer_scale": 1e-5 if scaled else None,
        "class_token": model.cls_token is not None,
        "num_registers": registers,
        "embed_prefix": rows > 64 or not prefix,
        "fc_norm": has["fc_norm"],
        "qk_norm": len(list(block.attn.q_norm.parameters())) > 0,
        "in_chans": 3,
        "num_classes": 7,
    }
    return vit_options(**(changes | facts))


def fate(name, folder) -> tuple[str, str]:
    """equal or refused, and the largest difference or the reason."""
    model = small(name)
    config: dict = {"architecture": name}
    if model is None:  # its class alone is looked at
        tensors = {"patch_embed.proj.weight": torch.ones(1), "blocks.0.norm1.weight": torch.ones(1)}
    else:
        config |= {"model_args": sizes(name)}
        tensors = {key: value.clone() for key, value in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    try:
        options = options_of(model) if model is not None else vit_options()
        for key, known, other in (("position", POSITIONS, "learned_1d"), ("pool", POOLS, "mean")):
            if options[key] not in known:  # for what the source states to be compared with
                options[key] = other
        ours = (DistilledVisionTransformer if hasattr(model, "head_dist") else VisionTransformer)(**options)
        report = load(randomized(ours, seed=3), str(folder), partial=False)
    except CheckpointError as error:
        if model is None and "is no Vision Transformer of ours" not in str(error):
            raise AssertionError(f"{name} cannot be made small, and its class is not refused: {error}") from error
        return "refused", str(error).replace(str(folder), "it")
    anew = [entry.note for entry in report.entries if entry.tensor == "head.weight" and entry.status != "copied"]
    assert not anew, (name, anew)
    worst = 0.0
    for size in (32, 48):
        if size != 32:
            model.set_input_size(img_size=size)
            other = type(ours)(**(options | {"image_size": size}))
            load(randomized(other, seed=3), str(folder), partial=False)
            ours = other
        with torch.inference_mode():
            expected, found = model(images(size)), ours.eval()(images(size))
        worst = max(worst, ((found - expected).abs().max() / expected.abs().max()).item())
    return ("equal" if worst < CLOSE else "different"), f"{worst:.1e}"
