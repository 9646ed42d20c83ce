"""ViT-5's files by their published names, beside the paper's equations written out for one image."""

import math

import pytest
import torch
import torch.nn.functional as F
from foreign import images, loaded, ours

from vitlab.errors import CheckpointError, ConfigError
from vitlab.models import VisionTransformer
from vitlab.weights.exporting import ExportedPreprocessing
from vitlab.weights.huggingface_export import export_huggingface
from vitlab.weights.timm_export import export_timm

D, HEADS, DEPTH, PATCH, REGISTERS = 32, 2, 2, 4, 4
OPTIONS = {
    "norm": "rms_norm",
    "qkv_bias": False,
    "qk_norm": True,
    "layer_scale": 1e-4,
    "position": "learned_rotary_registers",
    "embed_prefix": False,
    "num_registers": REGISTERS,
    "embed_dim": D,
    "depth": DEPTH,
    "num_heads": HEADS,
}


def published(side=8, heads=HEADS, temperature=10_000.0):
    """Random tensors under the published names, for a grid of side x side patches."""
    generator = torch.Generator().manual_seed(4)
    d = D // heads
    shapes = {
        "cls_token": (1, 1, D),
        "reg_token": (1, REGISTERS, D),
        "pos_embed": (1, side * side, D),
        "patch_embed.proj.weight": (D, 3, PATCH, PATCH),
        "patch_embed.proj.bias": (D,),
        "norm.weight": (D,),
        "head.weight": (7, D),
        "head.bias": (7,),
    }
    block = {
        "gamma_1": (D,),
        "gamma_2": (D,),
        "norm1.weight": (D,),
        "norm2.weight": (D,),
        "attn.qkv.weight": (3 * D, D),
        "attn.proj.weight": (D, D),
        "attn.proj.bias": (D,),
        "attn.q_norm.weight": (d,),
        "attn.k_norm.weight": (d,),
        "mlp.fc1.weight": (4 * D, D),
        "mlp.fc1.bias": (4 * D,),
        "mlp.fc2.weight": (D, 4 * D),
        "mlp.fc2.bias": (D,),
    }
    shapes |= {f"blocks.{i}.{name}": shape for i in range(DEPTH) for name, shape in block.items()}
    found = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
    exponents = torch.arange(0, d // 2, 2) / (d // 2)
    for i in range(DEPTH):
        found[f"blocks.{i}.attn.rope.freqs"] = temperature**-exponents
        found[f"blocks.{i}.attn.rope_reg.freqs"] = 100.0**-exponents
    return found


def turned(x, side, frequencies):
    """One token and one pair after the other, as complex numbers: the first half by rows, the second by columns."""
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()).clone()  # (h, N, d/2)
    half = z.shape[-1] // 2
    for number in range(z.shape[1]):
        for pair in range(2 * half):
            place = number // side if pair < half else number % side
            z[:, number, pair] *= complex(*(f(place * frequencies[pair % half].item()) for f in (math.cos, math.sin)))
    return torch.view_as_real(z).flatten(-2)


def logits(tensors, image):
    """(3, H, W) -> (7,). Registers stand last, as in the paper's code."""

    def rms(x, name):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * tensors[f"{name}.weight"]

    patches = F.conv2d(image[None], tensors["patch_embed.proj.weight"], tensors["patch_embed.proj.bias"], stride=PATCH)
    side = patches.shape[-1]
    patches = patches[0].flatten(1).T + tensors["pos_embed"][0]
    x = torch.cat([tensors["cls_token"][0], patches, tensors["reg_token"][0]])
    for i in range(DEPTH):
        at = f"blocks.{i}"
        q, k, v = (F.linear(rms(x, f"{at}.norm1"), w) for w in tensors[f"{at}.attn.qkv.weight"].chunk(3))
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(0, 1) for t in (q, k, v))  # (h, T, d)
        q, k = rms(q, f"{at}.attn.q_norm"), rms(k, f"{at}.attn.k_norm")
        turn = []
        for t in (q, k):
            first, middle, last = t.split([1, side * side, REGISTERS], dim=1)
            middle = turned(middle, side, tensors[f"{at}.attn.rope.freqs"])
            turn.append(torch.cat([first, middle, turned(last, 2, tensors[f"{at}.attn.rope_reg.freqs"])], dim=1))
        q, k = turn
        attention = (q @ k.transpose(-2, -1) / math.sqrt(D // HEADS)).softmax(-1) @ v
        attention = attention.transpose(0, 1).flatten(1)
        attention = F.linear(attention, tensors[f"{at}.attn.proj.weight"], tensors[f"{at}.attn.proj.bias"])
        x = x + tensors[f"{at}.gamma_1"] * attention
        hidden = F.gelu(F.linear(rms(x, f"{at}.norm2"), tensors[f"{at}.mlp.fc1.weight"], tensors[f"{at}.mlp.fc1.bias"]))
        x = x + tensors[f"{at}.gamma_2"] * F.linear(
            hidden, tensors[f"{at}.mlp.fc2.weight"], tensors[f"{at}.mlp.fc2.bias"]
        )
    return F.linear(rms(x, "norm")[0], tensors["head.weight"], tensors["head.bias"])


@pytest.mark.parametrize("size", [32, 48])
def test_its_logits_are_those_of_the_equations(size, tmp_path):
    """A file for each size, as the paper's fine-tuning at another size numbers its patches anew."""
    tensors = published(side=size // PATCH)
    torch.save({"model": tensors}, tmp_path / "vit5.pth")
    model, report = loaded(tmp_path / "vit5.pth", image_size=size, **OPTIONS)
    assert report.assumed == {}
    assert all(entry.note == "" for entry in report.entries)
    x = images(size)
    with torch.inference_mode():
        expected = torch.stack([logits(tensors, image) for image in x])
        torch.testing.assert_close(model.eval()(x), expected, atol=1e-5, rtol=1e-5)


def test_at_another_size_its_positions_are_resized_as_in_deit(tmp_path):
    tensors = published()
    torch.save({"model": tensors}, tmp_path / "vit5.pth")
    model, _ = loaded(tmp_path / "vit5.pth", image_size=48, **OPTIONS)
    table = tensors["pos_embed"].reshape(1, 8, 8, D).permute(0, 3, 1, 2)
    table = F.interpolate(table, size=(12, 12), mode="bicubic", align_corners=False)
    resized = tensors | {"pos_embed": table.permute(0, 2, 3, 1).flatten(1, 2)}
    x = images(48)
    with torch.inference_mode():
        expected = torch.stack([logits(resized, image) for image in x])
        torch.testing.assert_close(model.eval()(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_heads": 4}, "num_heads 2"),
        ({"norm_eps": 1e-5}, "norm_eps 1e-06"),
        ({"mlp": "relu"}, "mlp gelu"),
        ({"position": "learned_rotary"}, "position learned_rotary_registers"),
        ({"pre_norm": True}, "pre_norm false"),
        ({"norm": "layer_norm", "qk_norm": False}, "norm rms_norm"),
    ],
)
def test_a_field_that_changes_the_function_is_noticed(options, words, tmp_path):
    torch.save({"model": published()}, tmp_path / "vit5.pth")
    with pytest.raises(CheckpointError, match=words):
        loaded(tmp_path / "vit5.pth", **(OPTIONS | options))


def test_other_frequencies_are_refused(tmp_path):
    torch.save({"model": published(temperature=5_000.0)}, tmp_path / "vit5.pth")
    with pytest.raises(
        CheckpointError, match=r"blocks\.0\.attn\.rope\.freqs of the source does not have ViT-5's temperature 10000"
    ):
        loaded(tmp_path / "vit5.pth", **OPTIONS)


@pytest.mark.parametrize("options", [{"num_registers": 3}, {"class_token": False, "pool": "mean", "num_registers": 0}])
def test_registers_that_make_no_square_are_refused(options):
    with pytest.raises(ValueError, match="square number of registers"):
        ours(VisionTransformer, **(OPTIONS | options))


@pytest.mark.parametrize("export", [export_timm, export_huggingface])
def test_no_library_has_it(export):
    with pytest.raises(ConfigError, match="learned_rotary_registers positions"):
        export(ours(**OPTIONS), ["a"] * 7, ExportedPreprocessing([0.5], [0.2], None, 3))
