"""Tiny models of the other libraries, every parameter random, and the same model here with others."""

import json
import warnings

import numpy as np
import torch
from conftest import vit_options
from safetensors.torch import save_file

from vitlab.models import VisionTransformer
from vitlab.weights import load

SIZES = {"in_chans": 3, "num_classes": 7}


def randomized(model, seed=1):
    """Biases that start at 0 and norms at 1 would prove nothing."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    return model.eval()


def ours(kind=VisionTransformer, **changes):
    return randomized(kind(**vit_options(**(SIZES | changes))), seed=3)  # not the numbers that are to be loaded


def images(height=32, width=None, channels=3):
    return torch.randn(2, channels, height, width or height, generator=torch.Generator().manual_seed(2))


def distance(model, other, x):
    """Largest difference of two models' logits."""
    with torch.inference_mode():
        a, b = model(x), other(x)
    b = getattr(b, "logits", b)
    assert a.shape == b.shape
    assert b.std() > 0.05  # logits that say something
    return (a - b).abs().max().item()


def loaded(source, kind=VisionTransformer, partial=False, head=True, **changes):
    model = ours(kind, **changes)
    return model, load(model, str(source), partial=partial, head=head)


def timm_vit(name="vit_base_patch16_224", **changes):
    import timm

    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 7}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return randomized(timm.create_model(name, **(sizes | changes)))


def write_timm(folder, model, arguments, name="vit_base_patch16_224"):
    """What timm's save_for_hf writes of a model that `timm_vit` has made with these arguments."""
    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 7}
    save_file({key: value.clone() for key, value in model.state_dict().items()}, folder / "model.safetensors")
    config = {"architecture": name, "num_classes": 7, "model_args": sizes | arguments}
    (folder / "config.json").write_text(json.dumps(config))


def huggingface_vit(**changes):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    shape = {"image_size": 32, "patch_size": 4, "num_labels": 7}
    return randomized(ViTForImageClassification(ViTConfig(**(sizes | shape | changes))))


def torchvision_vit(image_size=32, representation_size=None):
    from torchvision.models import VisionTransformer as Torchvision

    return randomized(Torchvision(image_size, 4, 2, 2, 32, 128, num_classes=7, representation_size=representation_size))


def write_npz(path, state, num_heads, prefix="", big_vision=False):
    """A state dict of timm's names in the layout of google-research/vision_transformer, or of big_vision."""
    arrays = {}

    def put(name, value):
        arrays[prefix + name] = value.detach().numpy()

    def heads(place, weight, bias):
        D = weight.shape[1]
        put(f"{place}/kernel", weight.T.reshape(D, num_heads, -1))
        put(f"{place}/bias", bias.reshape(num_heads, -1))

    def joined(place, weight, bias):
        put(f"{place}/kernel", weight.T.reshape(num_heads, -1, weight.shape[0]))
        put(f"{place}/bias", bias)

    def dense(place, name):
        put(f"{place}/kernel", state[f"{name}.weight"].T)
        put(f"{place}/bias", state[f"{name}.bias"])

    def norm(place, name):
        put(f"{place}/scale", state[f"{name}.weight"])
        put(f"{place}/bias", state[f"{name}.bias"])

    put("embedding/kernel", state["patch_embed.proj.weight"].permute(2, 3, 1, 0))
    put("embedding/bias", state["patch_embed.proj.bias"])
    if "cls_token" in state:
        put("cls", state["cls_token"])
    put("pos_embedding" if big_vision else "Transformer/posembed_input/pos_embedding", state["pos_embed"])
    norm("Transformer/encoder_norm", "norm")
    dense("head", "head")
    if "pre_logits.fc.weight" in state:
        dense("pre_logits", "pre_logits.fc")
    mha, mlp, second = (0, 0, 1) if big_vision else (1, 3, 2)
    for i in range(sum(name.endswith("norm1.weight") for name in state)):
        block, own = f"Transformer/encoderblock_{i}", f"blocks.{i}"
        norm(f"{block}/LayerNorm_0", f"{own}.norm1")
        norm(f"{block}/LayerNorm_{second}", f"{own}.norm2")
        weights, biases = state[f"{own}.attn.qkv.weight"].chunk(3), state[f"{own}.attn.qkv.bias"].chunk(3)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            heads(f"{block}/MultiHeadDotProductAttention_{mha}/{name}", weight, bias)
        joined(
            f"{block}/MultiHeadDotProductAttention_{mha}/out",
            state[f"{own}.attn.proj.weight"],
            state[f"{own}.attn.proj.bias"],
        )
        for layer in (1, 2):
            dense(f"{block}/MlpBlock_{mlp}/Dense_{layer - 1}", f"{own}.mlp.fc{layer}")
    if "attn_pool.latent" in state:
        pool = "MAPHead_0"
        put(f"{pool}/probe", state["attn_pool.latent"])
        norm(f"{pool}/LayerNorm_0", "attn_pool.norm")
        heads(f"{pool}/MultiHeadDotProductAttention_0/query", state["attn_pool.q.weight"], state["attn_pool.q.bias"])
        pairs = zip(("key", "value"), state["attn_pool.kv.weight"].chunk(2), state["attn_pool.kv.bias"].chunk(2))  # noqa: B905
        for name, weight, bias in pairs:
            heads(f"{pool}/MultiHeadDotProductAttention_0/{name}", weight, bias)
        joined(
            f"{pool}/MultiHeadDotProductAttention_0/out", state["attn_pool.proj.weight"], state["attn_pool.proj.bias"]
        )
        for layer in (1, 2):
            dense(f"{pool}/MlpBlock_0/Dense_{layer - 1}", f"attn_pool.mlp.fc{layer}")
    np.savez(path, **arrays)
