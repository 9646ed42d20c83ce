"""Decide whether a head is copied: only where all before it is copied too, and computes the same.

K num_classes
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from vitlab.errors import CheckpointError
from vitlab.layers import POOLS
from vitlab.models import EncoderDecoder, SingleStream, VisionTransformer, head_names
from vitlab.weights.facts import pooling_name, settings
from vitlab.weights.fitting import FittedTensors, list_rows
from vitlab.weights.form import LoadedWeights

HEAD = re.compile(r"(head|head_dist|pre_logits\.fc)\.(weight|bias)")  # of a Vision Transformer
LAYER, SECOND = "pre_logits.fc.weight", "head_dist.weight"
KINDS = ("a distilled ViT, as model=deit_b16_distilled", "a plain ViT with model.num_registers=1")
NEW = "model.pretrained_head=false"
Options = dict[str, tuple[Any, Any]]  # by the keys of the model's config: the source's value, and the model's


def find_head_names(model: nn.Module, tensors: Mapping[str, Tensor]) -> set[str]:
    """Find the tensors that are heads for classes; what scores the tokens of a vocabulary is none."""
    if isinstance(model, VisionTransformer):
        return {name for name in tensors if HEAD.fullmatch(name)}
    return set() if isinstance(model, EncoderDecoder | SingleStream) else head_names(model) & tensors.keys()


def settle_head(
    model: nn.Module, source: LoadedWeights, fitted: FittedTensors, before: list[str], *, partial: bool, wanted: bool
) -> None:
    """Let the head start anew unless it is `wanted` and computes the same. `before` lists what differs in front of it.

    Raises CheckpointError where the source has a head for as many classes that cannot be copied, unless what fits is
    to be taken (`partial`), or a new head is wanted.
    """
    own, given = model.state_dict(), fitted.tensors
    ours, theirs = find_head_names(model, own), find_head_names(model, given)
    options = compare_options(model, source) if isinstance(model, VisionTransformer) else {}
    obstacles = [*before, *list_obstacles(options)]
    equal = {name for name in ours & theirs if own[name].shape == given[name].shape}
    classes = count_classes(given, theirs)
    if not wanted:
        reason = "a new one is asked for"
    elif not classes:
        reason = "the source has no head"
        if not obstacles and equal == theirs:  # Hugging Face's pooler, without a head behind it
            ours, theirs = ours - theirs, set()
    elif classes != count_classes(own, ours):
        reason = f"the source's head is for {classes} classes"
    else:
        obstacles = obstacles or [f"it has no {name}" for name in sorted(ours - theirs)]
        obstacles = obstacles or [f"the model has no {name}" for name in sorted(theirs - ours)]
        obstacles = obstacles or [f"{name} is of another shape" for name in sorted(ours - equal)]
        if not obstacles:
            return
        reason = "; ".join(obstacles)
        if not partial:
            known = "pool" not in options or options["pool"][0] in POOLS
            advice = f"{remedy(options)}, or {NEW}" if known and options else f"no option computes the same; set {NEW}"
            if SECOND in ours ^ theirs:
                advice = f"choose {KINDS[SECOND in ours]}, or set {NEW}"
            raise CheckpointError(
                f"the head of {source.origin}, for {classes} classes, cannot be copied: {reason}; {advice} for a new "
                "head"
            )
    fitted.anew |= dict.fromkeys(ours, reason)
    fitted.spare |= dict.fromkeys(theirs, "head of the source")


def count_classes(tensors: Mapping[str, Tensor], heads: set[str]) -> int:
    """Count the classes of a head; 0 where there is none."""
    return next((count_rows(tensors[name]) for name in heads - {LAYER} if name.endswith("weight")), 0)


def count_rows(tensor: Tensor) -> int:
    return int(tensor.shape[0]) if tensor.ndim else 0


def compare_options(model: VisionTransformer, source: LoadedWeights) -> Options:
    """Compare the options that add tokens and those that read them; what is alike is left out."""
    tensors, own_pool = source.tensors, pooling_name(model)
    layer: Any = getattr(model.pre_logits, "fc", None)
    after, own_after = "fc_norm.weight" in tensors, not isinstance(model.fc_norm, nn.Identity)
    shown = "map" if "attn_pool.latent" in tensors else "mean" if after and own_pool == "cls" else own_pool
    pool = source.pool or shown
    found: Options = {
        "class_token": ("cls_token" in tensors, model.cls_token.shape[1] > 0),
        "pool": (pool, own_pool),
    }
    if (SECOND in tensors) == hasattr(model, "head_dist"):  # without a head, a distillation token is a register
        known = {"cls_token", "dist_token" if SECOND in tensors else ""}
        others = [name for name, _ in list_rows(tensors) if name not in known]
        found["num_registers"] = (len(others), model.reg_token.shape[1])
    if count_classes(tensors, find_head_names(model, tensors)):
        width = count_rows(tensors[LAYER]) if LAYER in tensors else None
        found["representation_dim"] = (width, layer and layer.out_features)
    found = {key: pair for key, pair in found.items() if pair[0] != pair[1]}
    if pool in POOLS and not POOLS[pool].needs_class_token:
        chosen = own_after != POOLS[own_pool].before_norm  # otherwise null, which another pooling takes otherwise
        if after != own_after if pool == own_pool else chosen or after != POOLS[pool].before_norm:
            found["fc_norm"] = (after, own_after)
    return found


def list_obstacles(options: Options) -> list[str]:
    """Say in words why a head behind other options reads something else."""
    words: dict[str, tuple[str, Callable[[Any], str]]] = {
        "pool": ("it reads", lambda pool: POOLS[pool].reads if pool in POOLS else pool),
        "fc_norm": ("its last norm is", lambda after: "behind the pooling" if after else "before the pooling"),
        "representation_dim": ("it follows", lambda width: f"a tanh layer of width {width}" if width else "no layer"),
    }
    said = [(*words[key], *pair) for key, pair in options.items() if key in words and pair[0] != pair[1]]
    return [f"{verb} {word(theirs)}, and the model's {word(ours)}" for verb, word, theirs, ours in said]


def remedy(options: Options) -> str:
    """Tell what to set for the model to compute the same, as far as there are options for it."""
    wanted = {key: theirs for key, (theirs, _) in options.items() if key != "pool" or theirs in POOLS}
    kept = options["pool"][1] if "pool" in options and "pool" not in wanted else None
    if wanted.get("class_token") is False and kept in POOLS and POOLS[kept].needs_class_token:
        wanted["pool"] = "mean"  # no pooling is theirs, and the model's would have nothing to read
    return f"set {settings(wanted)}" if wanted else ""
