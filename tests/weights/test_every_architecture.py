"""What fits need not be the same function: each architecture of timm and of transformers that has patches gives its own
logits here, or is refused with a reason."""

import csv
import json
from pathlib import Path

import pytest
from architectures import fate, names, small
from foreign import huggingface_vit, loaded
from kinds import KNOWN, patched
from kinds import fate as fate_of_kind
from safetensors.torch import save_file
from transformers_classes import fate as fate_of_class
from transformers_classes import names as names_of_classes
from transformers_classes import read_table, rows, verdict

from vitlab.errors import CheckpointError


def table(name):
    with open(Path(__file__).with_name(name), newline="") as file:
        return {first: outcome for first, outcome, *_ in list(csv.reader(file))[1:]}


WRITTEN, KINDS, CLASSES = table("architectures.csv"), table("kinds.csv"), read_table()
SAMPLE = list(WRITTEN)[::12]


def test_the_table_names_every_architecture_that_there_is():
    assert list(WRITTEN) == names()
    assert set(WRITTEN.values()) == {"equal", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_one_in_twelve(name, tmp_path):
    outcome, detail = fate(name, tmp_path)
    assert outcome == WRITTEN[name], detail


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_all_of_timms(tmp_path):
    found = {}
    for name in names():
        (tmp_path / name).mkdir()
        found[name], detail = fate(name, tmp_path / name)
        assert found[name] == WRITTEN[name], (name, detail)
    assert len(found) > 400


# -- of transformers


@pytest.mark.slow
def test_the_table_names_every_kind_that_there_is():
    assert list(KINDS) == list(patched())
    assert set(KINDS.values()) == {"equal", "refused"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_transformers(kind, tmp_path):
    outcome, detail = fate_of_kind(kind, tmp_path)
    assert outcome == KINDS[kind], detail
    assert outcome == "equal" or f"kind '{kind}', which is not known" in detail


def test_no_class_of_transformers_is_missing():
    assert list(CLASSES) == names_of_classes()
    assert {outcome for _, outcome, _ in CLASSES.values()} == {"equal", "features", "refused"}


def test_the_rule_says_of_each_class_what_the_table_says():
    """The table was written after each had run."""
    assert {name: (kind, *verdict(name, kind)) for name, (kind, *_) in CLASSES.items()} == CLASSES


@pytest.mark.parametrize("name", [name for name, (kind, *_) in CLASSES.items() if kind in KNOWN])
def test_classes_of_known_kinds(name, tmp_path):
    assert fate_of_class(name, tmp_path) == CLASSES[name]


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_every_class_of_transformers():
    """`python tests/weights/transformers_classes.py` writes the table anew."""
    assert {name: tuple(row) for name, *row in rows()} == CLASSES


# -- what no tensor shows

TIMM = [
    ("vit_base_patch16_224", {"num_heads": 4}, "num_heads 4"),
    ("vit_base_patch16_224", {"act_layer": "quick_gelu"}, "mlp quick_gelu"),
    ("vit_base_patch16_224", {"act_layer": "tanh"}, "Tanh"),
    ("vit_base_patch16_224", {"norm_layer": "layernorm2d"}, "LayerNorm2d"),
    ("vit_base_patch16_224", {"global_pool": "max"}, "pooling 'max'"),
    ("vit_base_patch16_224", {"global_pool": "avgmax"}, "pooling 'avgmax'"),
    (
        "vit_base_patch16_224",
        {"global_pool": "avg", "fc_norm": False, "pool_include_prefix": True},
        "the mean of the patches, prefix tokens among them",
    ),
    ("vit_small_patch16_rope_ape_224", {"rope_temperature": 10.0}, "temperature=10"),
    ("vit_small_patch16_rope_ape_224", {"rope_grid_offset": 1.0}, "grid_offset=1"),
    ("vit_small_patch16_rope_ape_224", {"rope_grid_indexing": "ij"}, "grid_indexing=ij"),
    ("vit_small_patch16_rope_ape_224", {"use_rot_pos_emb": False}, "position learned_1d"),
    ("vit_small_patch16_rope_ape_224", {"num_heads": 4}, "num_heads 4"),
]


@pytest.mark.parametrize(("name", "change", "words"), TIMM)
def test_a_change_that_timm_states_is_noticed(name, change, words, tmp_path):
    model = small(name)
    save_file({key: value.clone() for key, value in model.state_dict().items()}, tmp_path / "model.safetensors")
    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 7}
    rotary = {"position": "learned_rotary", "layer_scale": 1e-5} if "rope" in name else {}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": name, "model_args": sizes}))
    loaded(tmp_path, norm_eps=1e-6, **rotary)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": name, "model_args": sizes | change}))
    with pytest.raises(CheckpointError) as error:
        loaded(tmp_path, norm_eps=1e-6, **rotary)
    assert words in str(error.value)


HUGGING_FACE = [
    ({"num_attention_heads": 4}, "num_heads 4"),
    ({"hidden_act": "silu"}, "mlp silu"),
    ({"hidden_act": "gelu_10"}, "mlp gelu_10"),
    ({"layer_norm_eps": 1e-5}, "norm_eps 1e-05"),
    ({"hidden_act": "relu6"}, "mlp relu6"),
    ({"model_type": "clip_vision_model"}, "pre_norm true, but the model with false"),
    ({"model_type": "dinov3_vit"}, "position rotary_centered"),
    ({"model_type": "dinov3_vit", "rope_theta": 10.0}, "position rotary of theta 10"),
    ({"model_type": "beit"}, "kind 'beit'"),
    ({"architectures": ["ViTModel"], "pooler_act": "relu"}, "the class token through relu"),
]


@pytest.mark.parametrize(("change", "words"), HUGGING_FACE)
def test_a_change_that_hugging_face_states_is_noticed(change, words, tmp_path):
    huggingface_vit().save_pretrained(tmp_path)
    loaded(tmp_path, norm_eps=1e-12)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError) as error:
        loaded(tmp_path, norm_eps=1e-12)
    assert words in str(error.value)
