"""Our variants, opened by the other libraries; and those that these have no words for."""

import pytest
import timm
from foreign import distance, images, ours
from PIL import Image

from vitlab.errors import ConfigError
from vitlab.models import DistilledVisionTransformer
from vitlab.programs.export import find_resize_size, write
from vitlab.weights.exporting import ExportedPreprocessing
from vitlab.weights.huggingface_export import export_huggingface
from vitlab.weights.timm_export import export_timm

NAMES = [f"class {i}" for i in range(7)]
PREPROCESSING = ExportedPreprocessing([0.5, 0.4, 0.3], [0.2, 0.2, 0.1], 37, Image.Resampling.BICUBIC)
BOTH = {
    "plain": {},
    "not square": {"image_size": [24, 40]},
    "tanh": {"mlp": "gelu_tanh"},
    "layer_scale": {"layer_scale": 0.1},
    "unbiased": {"qkv_bias": False},
    "patches_only_positions": {"embed_prefix": False},
    "learned_2d": {"position": "learned_2d"},
    "sincos": {"position": "sincos_2d"},
    "fc_norm": {"fc_norm": True},
    "mlp_dim": {"mlp_ratio": None, "mlp_dim": 75},
    "written": {"attention": "written"},
    "quick_gelu": {"mlp": "quick_gelu"},
    "silu": {"mlp": "silu"},
}
TIMM = {
    "none": {"position": "none"},
    "mean": {"pool": "mean", "class_token": False},
    "mean_norm_before": {"pool": "mean", "fc_norm": False},
    "map": {"pool": "map", "class_token": False},
    "registers": {"num_registers": 3},
    "registers_without_positions": {"num_registers": 3, "embed_prefix": False},
    "swiglu": {"mlp": "swiglu"},
    "rms_norm": {"norm": "rms_norm", "qk_norm": True},
    "rotary": {"position": "rotary", "pool": "mean", "class_token": False},
    "rotary_registers": {"position": "rotary", "num_registers": 2, "mlp": "swiglu", "fc_norm": True},
    "learned_rotary": {"position": "learned_rotary", "layer_scale": 0.1, "embed_prefix": False},
    "dinov3": {"position": "rotary_centered", "norm_eps": 1e-5, "num_registers": 2, "layer_scale": 0.1},
    "clip": {"pre_norm": True, "norm_eps": 1e-5, "mlp": "quick_gelu"},
    "siglip": {"pool": "map", "class_token": False, "mlp": "gelu_tanh"},
    "distilled": {"kind": DistilledVisionTransformer},
    "distilled_patches": {"kind": DistilledVisionTransformer, "layer_scale": 0.1},
}
NEITHER = [
    ({"position": "relative"}, "model.position"),
    ({"position_place": "every_layer"}, "model.position_place"),
    ({"patch_size": None, "stem_channels": [8, 8]}, "model.stem_channels"),
]


@pytest.mark.parametrize("variant", [*BOTH, *TIMM])
def test_timm_opens_them(variant, tmp_path):
    model = ours(**(BOTH | TIMM)[variant])
    write(tmp_path, export_timm(model, NAMES, PREPROCESSING))
    other = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert distance(model, other, images(*model.patch_embed.image_size)) < 1e-5
    assert other.pretrained_cfg["label_names"] == NAMES


@pytest.mark.parametrize("variant", [*BOTH, "eps", "none"])
def test_transformers_opens_them(variant, tmp_path):
    from transformers import ViTForImageClassification

    model = ours(**(BOTH | TIMM | {"eps": {"norm_eps": 1e-2}})[variant])
    write(tmp_path, export_huggingface(model, NAMES, PREPROCESSING))
    other, loading = ViTForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(loading.values())  # no key missing, unexpected or of another shape
    assert distance(model, other.eval(), images(*model.patch_embed.image_size)) < 1e-5


@pytest.mark.parametrize(("several_labels", "kind"), [(False, "single"), (True, "multi")])
def test_transformers_knows_whether_classes_exclude_each_other(several_labels, kind):
    made = export_huggingface(ours(), NAMES, PREPROCESSING, several_labels)
    assert made.files["config.json"]["problem_type"] == f"{kind}_label_classification"


@pytest.mark.parametrize(
    ("library", "options", "words"),
    [
        ("timm", {"norm_eps": 1e-3}, "model.norm_eps"),
        ("timm", {"norm_eps": 1e-5, "norm": "rms_norm"}, "model.norm_eps"),
        ("timm", {"pre_norm": True, "position": "none"}, "model.pre_norm"),
        ("timm", {"position": "rotary", "mlp": "silu"}, "model.mlp"),
        ("timm", {"position": "rotary", "norm": "rms_norm"}, "model.norm"),
        ("timm", {"position": "rotary", "pool": "map"}, "attention pooling"),
        ("huggingface", {"position": "rotary"}, "model.position"),
        ("timm", {"mlp": "swiglu", "pool": "map"}, "model.pool"),
        ("timm", {"representation_dim": 24}, "model.representation_dim"),
        ("huggingface", {"pool": "mean"}, "model.pool"),
        ("huggingface", {"num_registers": 1}, "model.num_registers"),
        ("huggingface", {"mlp": "swiglu"}, "model.mlp"),
        ("huggingface", {"norm": "rms_norm"}, "model.norm"),
        ("huggingface", {"qk_norm": True}, "model.qk_norm"),
        ("huggingface", {"kind": DistilledVisionTransformer}, "distillation"),
        *[(library, options, words) for library in ("timm", "huggingface") for options, words in NEITHER],
    ],
)
def test_what_a_library_has_no_words_for_is_refused(library, options, words):
    make = {"timm": export_timm, "huggingface": export_huggingface}[library]
    with pytest.raises(ConfigError, match=words):
        make(ours(**options), NAMES, PREPROCESSING)


def test_models_of_other_libraries_are_not_exported():
    import torch

    with pytest.raises(ConfigError, match="Vision Transformer"):
        export_timm(torch.nn.Linear(2, 2), NAMES, PREPROCESSING)


def test_resizing_is_that_of_the_evaluation_crop():
    center = {"_target_": "vitlab.data.CenterCrop", "image_size": 32, "resize_size": 37, "interpolation": "bicubic"}
    assert find_resize_size(center) == (37, Image.Resampling.BICUBIC)
    whole = {"_target_": "vitlab.data.WholeImage", "image_size": 32, "interpolation": "bilinear"}
    assert find_resize_size(whole) == (None, Image.Resampling.BILINEAR)
    with pytest.raises(ConfigError, match="own shape"):
        find_resize_size({"_target_": "vitlab.data.TokenBudget", "max_tokens": 16, "interpolation": "bicubic"})
