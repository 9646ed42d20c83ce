"""timm's Vision Transformers by their options, with random weights: the same logits here, after the advice of each
refusal, or a refusal."""

import itertools
import random

import pytest
from advice import OWN, follow
from architectures import options_of
from conftest import vit_options
from foreign import loaded, timm_vit, write_timm

from vitlab.errors import CheckpointError
from vitlab.layers import POOLS, POSITIONS
from vitlab.models import DistilledVisionTransformer

READING = {  # what stands before and behind the blocks
    "global_pool": ("token", "avg", "map", "", "max", "avgmax"),
    "fc_norm": (None, False, True),
    "class_token": (True, False),
    "no_embed_class": (False, True),
    "reg_tokens": (0, 2),
    "pre_norm": (False, True),
    "final_norm": (True, False),
    "pool_include_prefix": (False, True),
}
ALL = [dict(zip(READING, values, strict=True)) for values in itertools.product(*READING.values())]
UNEQUAL = ("", "max", "avgmax")  # no pooling here is theirs
BLOCKS = {
    "init_values": (None, 1e-4),
    "qk_norm": (False, True),
    "qkv_bias": (True, False),
}
OTHERS = {  # an architecture of each class, and its options
    "vit_base_patch16_224": {
        **{key: READING[key] for key in ("fc_norm", "class_token", "reg_tokens", "no_embed_class", "pre_norm")},
        **BLOCKS,
        "global_pool": ("token", "avg", "map"),
        "act_layer": ("gelu", "quick_gelu", "gelu_tanh", "silu", "relu", "tanh"),
        "norm_layer": (None, None, "rmsnorm", "layernorm2d"),
        "proj_bias": (True, False),
        "scale_attn_norm": (*[False] * 5, True),
        "scale_mlp_norm": (*[False] * 5, True),
        "pos_embed": ("learn", "learn", "none"),
        "dynamic_img_size": (False, True),
    },
    "vit_small_patch16_rope_224": {
        **{key: READING[key] for key in ("class_token", "no_embed_class")},
        **BLOCKS,
        "global_pool": ("token", "avg", "map"),
        "use_fc_norm": (None, False, True),
        "num_reg_tokens": (0, 2),
        "swiglu_mlp": (False, True),
        "qkv_fused": (True, False),
        "use_abs_pos_emb": (True, False),
        "use_rot_pos_emb": (True, False),
        "use_post_transformer_norm": (None, None, True, False),
        "use_pre_transformer_norm": (False, True),
        "rope_temperature": (100.0, 100.0, 10000.0),
        "rope_grid_indexing": ("xy", "xy", "ij"),
        "rope_grid_offset": (0.0, 0.0, 1.0),
        "rope_rotate_half": (False, False, True),
        "attn_pool_num_heads": (None, None, 4),
    },
    "deit_base_distilled_patch16_224": {**BLOCKS, "fc_norm": (None, False, True), "act_layer": ("gelu", "silu")},
}


def check_reading(arguments, options, folder):
    """Equal logits wherever there are options for it."""
    try:
        source = timm_vit(**arguments)
    except AssertionError:  # no such model: a class token is read that is not there
        return
    write_timm(folder, source, arguments)
    options = options | {"pre_norm": arguments["pre_norm"], "embed_prefix": not arguments["no_embed_class"]}
    end, options = follow(folder, source, **options)
    prefix = arguments["class_token"] or arguments["reg_tokens"]
    other = arguments["pool_include_prefix"] and prefix and arguments["global_pool"] != "token"
    same = arguments["final_norm"] and arguments["global_pool"] not in UNEQUAL and not other
    assert (end == "equal") == same, (end, arguments, options)


def check_others(name, choose, folder):
    """Equal logits, or a refusal."""
    arguments = {key: choose.choice(values) for key, values in OTHERS[name].items()}
    try:
        source = timm_vit(name, **arguments)
    except AssertionError:
        return "none"
    write_timm(folder, source, arguments, name)
    try:
        options = options_of(source)
    except (CheckpointError, KeyError):  # it will be refused
        options = vit_options(in_chans=3, num_classes=7)
    for key, known, other in (("position", POSITIONS, "learned_1d"), ("pool", POOLS, "mean")):
        options[key] = options[key] if options[key] in known else other
    if hasattr(source, "head_dist"):
        options["kind"] = DistilledVisionTransformer
    elif choose.random() < 0.6:
        options |= choose.choice(OWN)
    return follow(folder, source, **options)[0]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read(seed, tmp_path):
    choose = random.Random(seed)
    check_reading(choose.choice(ALL), choose.choice(OWN), tmp_path)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", OTHERS)
def test_some_others(name, seed, tmp_path):
    check_others(name, random.Random(seed), tmp_path)


def test_advice_leaves_no_pooling_without_its_class_token(tmp_path):
    """Registers in a mean, which no option computes, and no class token, which the model's own pooling would read."""
    arguments = dict(zip(READING, ("avg", None, False, False, 2, False, True, True), strict=True))
    check_reading(arguments, {"pool": "cls", "fc_norm": False, "class_token": True, "num_registers": 2}, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
def test_all_that_can_be_read(seed, tmp_path):
    choose = random.Random(seed)
    for arguments in ALL:
        check_reading(arguments, choose.choice(OWN), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OTHERS)
def test_many_others(name, tmp_path):
    ends = [check_others(name, random.Random(seed), tmp_path) for seed in range(400)]
    assert ends.count("equal") > 40


def test_what_only_the_forward_pass_shows(tmp_path):
    """Attention pooling that looks at the class token too, and heads whose norm is passed by."""
    name, arguments = "vit_small_patch16_rope_224", {"global_pool": "map", "class_token": True}
    write_timm(tmp_path, timm_vit(name, **arguments), arguments, name)
    with pytest.raises(CheckpointError, match="its attention pooling looks at prefix tokens, too"):
        loaded(tmp_path, pool="map", position="rotary", layer_scale=1.0)
    name, arguments = "deit_base_distilled_patch16_224", {"fc_norm": True}
    write_timm(tmp_path, timm_vit(name, **arguments), arguments, name)
    with pytest.raises(CheckpointError, match="its two heads read tokens that its last norm has not seen"):
        loaded(tmp_path, kind=DistilledVisionTransformer, fc_norm=True)
