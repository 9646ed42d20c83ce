"""No folder is exported whose model computes something else, read back here or opened by its own library."""

import pytest
import torch
from foreign import ours
from test_export import BOTH, NAMES, PREPROCESSING, TIMM
from test_towers import OURS_AS_TOWERS

from vitlab.errors import ConfigError
from vitlab.programs.export import write
from vitlab.weights.export_proof import check_export
from vitlab.weights.exporting import Export
from vitlab.weights.huggingface_export import export_huggingface, open_huggingface
from vitlab.weights.timm_export import export_timm, open_timm

FORMATS = {"timm": (export_timm, open_timm), "huggingface": (export_huggingface, open_huggingface)}
EPS = {"eps": {"norm_eps": 1e-2}, "none": TIMM["none"], "fc_norm, class token": {"fc_norm": True}}
VARIANTS = [
    *[("timm", options) for options in (BOTH | TIMM).values()],
    *[("huggingface", options) for options in (BOTH | EPS).values()],
    *[("huggingface", options) for _, options in OURS_AS_TOWERS.values()],
]


def proved(folder, library, options, change=lambda made: made):
    export, open_there = FORMATS[library]
    model = ours(**options).eval()
    made = change(export(model, NAMES, PREPROCESSING))
    write(folder, made)
    return check_export(folder, made, model, ours(**(options | made.options)), open_there)


@pytest.mark.parametrize(("library", "options"), VARIANTS, ids=str)
def test_every_variant_is_proved_both_ways(library, options, tmp_path):
    assert proved(tmp_path, library, options) == ""


def other_weights(made):
    name = next(name for name in made.tensors if name.endswith("norm2.weight") or "layernorm_after.weight" in name)
    return Export(made.tensors | {name: made.tensors[name] * 1.01}, made.files, made.options, made.has_head)


def without_a_field(*path):
    """A config.json that says less, which its library fills with a default that is another function."""

    def change(made):
        place = made.files["config.json"]
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]
        return made

    return change


def test_a_model_whose_outputs_are_all_zero_proves_nothing(tmp_path):
    model = ours().eval()
    for value in model.head.parameters():
        torch.nn.init.zeros_(value)
    with pytest.raises(ConfigError, match="every output of this model is 0"):
        check_export(tmp_path, export_timm(model, NAMES, PREPROCESSING), model, ours(), open_timm)


@pytest.mark.parametrize("library", FORMATS)
def test_other_weights_are_refused(library, tmp_path):
    with pytest.raises(ConfigError, match=r"read back here, gives outputs that differ .* try the other format"):
        proved(tmp_path, library, {}, other_weights)


@pytest.mark.parametrize(
    ("library", "options", "path"),
    [
        ("timm", {"mlp": "quick_gelu"}, ("model_args", "act_layer")),
        ("timm", {"pool": "mean", "class_token": False}, ("model_args", "class_token")),
        ("huggingface", {"mlp": "relu"}, ("hidden_act",)),
        ("huggingface", {"norm_eps": 1e-2}, ("layer_norm_eps",)),
    ],
)
def test_a_field_that_is_missing_is_noticed(library, options, path, tmp_path):
    words = r"cannot be read back: .* computes with|cannot be opened by its own library: .*cls_token"
    with pytest.raises(ConfigError, match=words):
        proved(tmp_path, library, options, without_a_field(*path))


def test_its_own_library_has_the_last_word(tmp_path):
    """What is read back here by the same code that wrote it may still be another function there."""
    model = ours().eval()
    made = export_timm(model, NAMES, PREPROCESSING)
    write(tmp_path, made)
    with pytest.raises(ConfigError, match="opened by its own library, gives outputs that differ"):
        check_export(tmp_path, made, model, ours(), lambda folder: lambda images: open_timm(folder)(images) * 1.001)


def test_a_library_that_is_not_installed_is_named(tmp_path):
    def missing(folder):
        raise ImportError("No module named 'timm'")

    model = ours().eval()
    made = export_timm(model, NAMES, PREPROCESSING)
    write(tmp_path, made)
    note = check_export(tmp_path, made, model, ours(), missing)
    assert note == "not compared in its own library: No module named 'timm'"


@pytest.mark.parametrize("library", FORMATS)
def test_weights_that_are_not_finite_are_no_proof(library, tmp_path):
    model = ours()
    with torch.no_grad():
        model.head.bias.fill_(float("nan"))
    export, open_there = FORMATS[library]
    made = export(model, NAMES, PREPROCESSING)
    write(tmp_path, made)
    with pytest.raises(ConfigError):
        check_export(tmp_path, made, model, ours(), open_there)
