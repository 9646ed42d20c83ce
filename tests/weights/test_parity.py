"""Weights of each library, written by it, give its logits here: at the size they were made for, and at another."""

import pytest
import timm
import torch
from foreign import (
    distance,
    huggingface_vit,
    images,
    loaded,
    ours,
    randomized,
    timm_vit,
    torchvision_vit,
    write_npz,
)
from safetensors.torch import save_file

from vitlab.models import DistilledVisionTransformer
from vitlab.weights import load

CLOSE = 1e-4
# timm's model, changes to it, and what the same model is called here
TIMM = {
    "augreg": ("vit_base_patch16_224", {}, {}),
    "mean": (
        "vit_base_patch16_224",
        {"global_pool": "avg", "class_token": False},
        {"pool": "mean", "class_token": False},
    ),
    "mean_norm_before": (
        "vit_base_patch16_224",
        {"global_pool": "avg", "fc_norm": False},
        {"pool": "mean", "fc_norm": False},
    ),
    "deit3": ("deit3_base_patch16_224", {}, {"layer_scale": 1e-6, "embed_prefix": False}),
    "distilled": ("deit_base_distilled_patch16_224", {}, {"kind": DistilledVisionTransformer}),
    "siglip": ("vit_base_patch16_siglip_224", {}, {"pool": "map", "class_token": False}),
    "registers": ("vit_base_patch16_224", {"reg_tokens": 4}, {"num_registers": 4}),
    "dinov2_registers": (
        "vit_base_patch14_reg4_dinov2",
        {"num_classes": 7},
        {"num_registers": 4, "embed_prefix": False, "layer_scale": 1e-5},
    ),
    "swiglu": (
        "vit_giant_patch14_dinov2",
        {"mlp_ratio": 4.0},
        {"mlp": "swiglu", "mlp_ratio": 2.0, "layer_scale": 1e-5},
    ),
    "rms_norm_qk_norm": (
        "vit_base_patch16_224",
        {"norm_layer": "rmsnorm", "qk_norm": True},
        {"norm": "rms_norm", "qk_norm": True},
    ),
    "unbiased": ("vit_base_patch16_224", {"qkv_bias": False}, {"qkv_bias": False}),
}


@pytest.mark.parametrize("size", [32, 48, 24])
@pytest.mark.parametrize("variant", TIMM)
def test_timm_files(variant, size, tmp_path):
    name, changes, options = TIMM[variant]
    source = timm_vit(name, **changes)
    save_file(source.state_dict(), tmp_path / "model.safetensors")
    model, report = loaded(tmp_path / "model.safetensors", image_size=size, **options)
    other = timm_vit(name, img_size=size, **changes)
    state = timm.models.vision_transformer.checkpoint_filter_fn(source.state_dict(), other)
    other.load_state_dict(state)
    assert distance(model, other, images(size)) < CLOSE
    assert report.counts()["resized"] == (size != 32)
    assert report.counts()["initialised anew"] == report.counts()["left over"] == 0


@pytest.mark.parametrize("size", [(32, 32), (48, 48), (24, 40)])
def test_huggingface_folders(size, tmp_path):
    source = huggingface_vit(layer_norm_eps=1e-6)
    source.save_pretrained(tmp_path)
    model, _ = loaded(tmp_path, image_size=list(size))
    difference = distance(model, lambda x: source(x, interpolate_pos_encoding=True), images(*size))
    assert difference < CLOSE


def test_huggingface_weights_in_a_torch_file_and_in_shards(tmp_path):
    source = huggingface_vit(layer_norm_eps=1e-6)
    torch.save(source.state_dict(), tmp_path / "memory.pth")  # the names of the module, not of its files
    source.save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    for path in (tmp_path / "memory.pth", tmp_path / "shards"):
        assert distance(loaded(path)[0], source, images()) < CLOSE


@pytest.mark.parametrize("registers", [0, 2])
@pytest.mark.parametrize("gated", [False, True])
def test_huggingface_dinov2(registers, gated, tmp_path):
    import transformers

    kind = "Dinov2WithRegisters" if registers else "Dinov2"
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=4, use_swiglu_ffn=gated,
        **({"num_register_tokens": registers} if registers else {}),
    )  # fmt: skip
    source = randomized(getattr(transformers, f"{kind}Model")(config))
    source.save_pretrained(tmp_path)
    mlp = {"mlp": "swiglu", "mlp_ratio": None, "mlp_dim": 88} if gated else {}
    model, report = loaded(tmp_path, layer_scale=1.0, num_registers=registers, embed_prefix=False, **mlp)
    model.head = torch.nn.Identity()
    difference = distance(model, lambda x: source(x).last_hidden_state[:, 0], images())
    assert difference < CLOSE
    assert {e.tensor for e in report.entries if e.status == "initialised anew"} == {"head.weight", "head.bias"}


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("width", [None, 24])
def test_torchvision_files(width, size, tmp_path):
    from torchvision.models.vision_transformer import interpolate_embeddings

    source = torchvision_vit(representation_size=width)
    torch.save(source.state_dict(), tmp_path / "vit.pth")
    model, _ = loaded(tmp_path / "vit.pth", image_size=size, representation_dim=width)
    other = torchvision_vit(size, width)
    state = source.state_dict()
    other.load_state_dict(interpolate_embeddings(size, 4, state) if size != 32 else state)
    assert distance(model, other, images(size)) < CLOSE


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("prefix", ["", "opt/target/"])
def test_npz_of_vision_transformer_beside_timms_own_loader(prefix, size, tmp_path):
    write_npz(tmp_path / "vit.npz", timm_vit().state_dict(), 2, prefix)
    model, _ = loaded(tmp_path / "vit.npz", image_size=size)
    other = timm_vit(img_size=size)
    randomized(other, seed=4)
    other.load_pretrained(tmp_path / "vit.npz")
    assert distance(model, other, images(size)) < CLOSE


@pytest.mark.parametrize("size", [32, 48])
def test_npz_of_big_vision_beside_timms_own_loader(size, tmp_path):
    write_npz(tmp_path / "map.npz", timm_vit("vit_base_patch16_siglip_224").state_dict(), 2, "params/", big_vision=True)
    options = {"pool": "map", "class_token": False}
    model, _ = loaded(tmp_path / "map.npz", image_size=size, **options)
    other = timm_vit("vit_base_patch16_siglip_224", img_size=size)
    other.load_pretrained(tmp_path / "map.npz")
    assert distance(model, other, images(size)) < CLOSE


def test_npz_with_the_layer_before_the_head(tmp_path):
    source = ours(representation_dim=24)
    write_npz(tmp_path / "pre.npz", source.state_dict(), 2)
    assert distance(loaded(tmp_path / "pre.npz", representation_dim=24)[0], source, images()) < 1e-6


def dinov2_file(state):
    """As DINOv2's repository saves the same weights: a row for the class token alone, `w12` and `w3`."""
    state = dict(state)
    rows = torch.randn(1, 1, 32)
    state["register_tokens"] = state.pop("reg_token")
    state["cls_token"] = state["cls_token"] - rows
    state["pos_embed"] = torch.cat([rows, state["pos_embed"]], dim=1)
    state["mask_token"] = torch.zeros(1, 32)
    return {name.replace("fc1", "w12").replace("fc2", "w3"): value for name, value in state.items()}


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("embed_prefix", [False, True])
def test_facebook_dinov2_with_registers(embed_prefix, size, tmp_path):
    changes = {"mlp_ratio": 4.0, "reg_tokens": 4, "no_embed_class": True}
    source = timm_vit("vit_giant_patch14_dinov2", **changes)
    file = dinov2_file(source.state_dict())
    torch.save(file, tmp_path / "dinov2.pth")
    options = {"mlp": "swiglu", "mlp_ratio": 2.0, "layer_scale": 1e-5, "num_registers": 4, "embed_prefix": embed_prefix}
    model, report = loaded(tmp_path / "dinov2.pth", image_size=size, **options)
    other = timm_vit("vit_giant_patch14_dinov2", img_size=size, **changes)
    other.load_state_dict(timm.models.vision_transformer.checkpoint_filter_fn(dict(file), other))
    assert distance(model, other, images(size)) < CLOSE
    assert [e.tensor for e in report.entries if e.status == "left over"] == ["mask_token"]


@pytest.mark.parametrize("size", [32, 48])
def test_facebook_deit3_with_its_gammas(size, tmp_path):
    source = timm_vit("deit3_base_patch16_224")
    state = {
        name.replace("ls1.gamma", "gamma_1").replace("ls2.gamma", "gamma_2"): v
        for name, v in source.state_dict().items()
    }
    torch.save({"model": state}, tmp_path / "deit3.pth")
    model, _ = loaded(tmp_path / "deit3.pth", image_size=size, layer_scale=1e-6, embed_prefix=False)
    other = timm_vit("deit3_base_patch16_224", img_size=size)
    other.load_state_dict(
        timm.models.vision_transformer.checkpoint_filter_fn({"model": state}, other, adapt_layer_scale=True)
    )
    assert distance(model, other, images(size)) < CLOSE


def test_facebook_mae_and_dino_give_an_encoder(tmp_path):
    from argparse import Namespace

    source = timm_vit(num_classes=0)
    encoder = source.state_dict()
    mae = {**encoder, "mask_token": torch.zeros(1, 1, 32), "decoder_pred.weight": torch.zeros(3, 3)}
    torch.save({"model": mae, "epoch": 3, "args": Namespace(lr=0.1)}, tmp_path / "mae.pth")
    dino = {f"module.backbone.{name}": value for name, value in encoder.items()}
    dino |= {"module.head.mlp.0.weight": torch.zeros(2, 2), "module.head.last_layer.weight_v": torch.zeros(2, 2)}
    student = {name: value + 1 for name, value in dino.items()}
    torch.save({"student": student, "teacher": dino, "args": Namespace(lr=0.1)}, tmp_path / "dino.pth")
    for name in ("mae", "dino"):
        model, report = loaded(tmp_path / f"{name}.pth")
        model.head = torch.nn.Identity()
        assert distance(model, source, images()) < CLOSE
        assert report.counts()["left over"] == 2
    mean, report = loaded(tmp_path / "mae.pth", pool="mean")  # MAE's fine-tuning: a new norm after the mean
    torch.testing.assert_close(mean.fc_norm.weight, torch.ones(32))
    assert {e.tensor for e in report.entries if e.status == "initialised anew"} == {
        "fc_norm.weight", "fc_norm.bias", "head.weight", "head.bias",
    }  # fmt: skip


@pytest.mark.parametrize("option", [{"embed_prefix": False}, {"fc_norm": True}])
def test_the_same_function_in_other_tensors(option, tmp_path):
    """Rows of the prefix folded into its tokens; a norm before or after pooling by class token."""
    source = ours()
    save_file(source.state_dict(), tmp_path / "a.safetensors")
    model, _ = loaded(tmp_path / "a.safetensors", **option)
    assert distance(model, source, images()) < 1e-5
    if "embed_prefix" in option:
        save_file(model.state_dict(), tmp_path / "b.safetensors")
        assert distance(loaded(tmp_path / "b.safetensors")[0], source, images()) < 1e-5


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_channels_and_patches_as_timm_changes_them(channels, tmp_path):
    source = timm_vit()
    save_file(source.state_dict(), tmp_path / "a.safetensors")
    model, _ = loaded(tmp_path / "a.safetensors", in_chans=channels, patch_size=8)
    other = timm_vit(in_chans=channels, patch_size=8)
    state = timm.models.vision_transformer.checkpoint_filter_fn(source.state_dict(), other)
    kernel = state["patch_embed.proj.weight"]
    state["patch_embed.proj.weight"] = timm.models._manipulate.adapt_input_conv(channels, kernel)
    other.load_state_dict(state)
    assert distance(model, other, images(channels=channels)) < CLOSE


@pytest.mark.parametrize("position", ["learned_2d", "sincos_1d", "sincos_2d", "relative", "rotary"])
def test_positions_of_ours_at_another_size_are_those_of_the_run_time(position, tmp_path):
    """Weights resized on loading give what the model gives when it resizes them itself."""
    source = ours(position=position)
    save_file(source.state_dict(), tmp_path / "a.safetensors")
    model, _ = loaded(tmp_path / "a.safetensors", position=position, image_size=48)
    assert distance(model, lambda x: source(x, (12, 12)), images(48)) < 1e-5


def test_the_parameters_stay_the_same_memory(tmp_path):
    """Optimizers hold them already."""
    model = ours()
    before = {name: p.data_ptr() for name, p in model.named_parameters()}
    save_file(timm_vit().state_dict(), tmp_path / "a.safetensors")
    load(model, str(tmp_path / "a.safetensors"), partial=False)
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == before
