"""The page that explains a model: every number is computed anew here, from the weights, in another way."""

import base64
import copy
import json
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import SRC, vit_options
from scipy.ndimage import gaussian_filter

from vitlab.explaining.packing import choose_rows, pack
from vitlab.explaining.page import Explained, GivenImage, build_page
from vitlab.explaining.source_lines import find_line
from vitlab.layers.written_attention import attention_weights
from vitlab.models import DistilledVisionTransformer, VisionTransformer, record_attention, stages
from vitlab.tasks import Classification, MultilabelClassification

MEAN, STD, TEMPERATURE = [0.4], [0.3], 0.5
NAMES = [f"class <{number}>" for number in range(10)]


def build_model(kind=VisionTransformer, **changes):
    """A model whose random weights are large enough that heads differ."""
    torch.manual_seed(0)
    model = kind(**vit_options(**{"depth": 2, "image_size": 16} | changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.15)
    return model


class Half:
    """Stands for a task."""

    temperature = TEMPERATURE
    probabilities = Classification.probabilities


def build(model, count=1, most_bytes=3e6, mean=MEAN, std=STD, task=Half):
    C, (H, W) = model.patch_embed.proj.in_channels, model.patch_embed.image_size
    pixels = [
        torch.randint(0, 256, (C, H, W), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))
        for n in range(count)
    ]
    normed = [
        ((one / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])[None] for one in pixels
    ]
    images = [GivenImage(f"{n}<b>.png", one, x) for n, (one, x) in enumerate(zip(pixels, normed, strict=True))]
    given = Explained("a <run>", model, NAMES, task().probabilities, TEMPERATURE, mean, std)
    return build_page(given, images, most_bytes), images


def read(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def unpack(packed):
    """The numbers of a packed array, and the largest error of each that rounding allows."""
    whole = np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(len(packed["steps"]), -1)
    steps = np.array(packed["steps"])[:, None]
    return torch.tensor((whole * steps).reshape(packed["shape"])), float(steps.max()) * 0.51


def recompute(model, image, channels):
    """All stages of a plain ViT in float64, from its state dict alone: another way than the page's."""
    w = {name: value.detach().double() for name, value in model.state_dict().items()}
    h, P, D = model.blocks[0].attn.num_heads, model.patch_embed.patch_size, w["head.weight"].shape[1]
    d, x = D // h, image.double()
    cut = F.unfold(x, P, stride=P)[0].T  # (N, C·P·P)
    convolution = F.conv2d(x, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=P)[0].flatten(1).T
    linear = cut @ w["patch_embed.proj.weight"].flatten(1).T + w["patch_embed.proj.bias"]
    found = {"linear": linear[:, channels], "convolution": convolution[:, channels]}
    found |= {"embedded": torch.cat([w["cls_token"][0], linear]), "position": w["pos_embed"][0]}
    z = found["stem"] = found["embedded"] + found["position"]
    places = F.normalize(w["pos_embed"][0, 1:], dim=1)
    found["similarity"] = places @ places.T

    def norm(x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        return (x - mean) / (variance + 1e-6).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def read_head(z):
        return norm(z[0], "norm") @ w["head.weight"].T + w["head.bias"]

    layers, logits, rolled = {}, [read_head(z)], torch.eye(len(z)).double()
    for number in range(len(model.blocks)):
        b = f"blocks.{number}"
        qkv = norm(z, f"{b}.norm1") @ w[f"{b}.attn.qkv.weight"].T + w[f"{b}.attn.qkv.bias"]
        q, k, v = qkv.reshape(len(z), 3, h, d).permute(1, 2, 0, 3)
        score = torch.einsum("hid,hjd->hij", q, k) / math.sqrt(d)
        share = (score.exp() / score.exp().sum(-1, keepdim=True)).requires_grad_()
        output = torch.einsum("hij,hjd->hid", share, v)
        looked = output.permute(1, 0, 2).reshape(len(z), D) @ w[f"{b}.attn.proj.weight"].T + w[f"{b}.attn.proj.bias"]
        between = z + looked
        hidden = norm(between, f"{b}.norm2") @ w[f"{b}.mlp.fc1.weight"].T + w[f"{b}.mlp.fc1.bias"]
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        thought = hidden @ w[f"{b}.mlp.fc2.weight"].T + w[f"{b}.mlp.fc2.bias"]
        lengths = torch.stack([x.square().sum(-1).sqrt() for x in (z, looked, between, thought, between + thought)], -1)
        z = between + thought
        logits.append(read_head(z))
        rolled = (share.mean(0) + torch.eye(len(z))) / 2 @ rolled
        own = {"q": q, "k": k, "v": v, "score": score, "share": share, "output": output, "length": lengths}
        for name, value in own.items():
            layers.setdefault(name, []).append(value)
    logits = torch.stack(logits)
    best = logits[-1].argsort(descending=True)[:10]
    found["evidence"] = torch.stack([combine(layers["share"], logits[-1, k]) for k in best[:2]])
    found |= {name: torch.stack(values).detach() for name, values in layers.items()}
    logits, rolled = logits.detach(), rolled.detach()
    found |= remove_and_add(model, x, [*found["evidence"], rolled[0, 1:]], [best[0], best[1], best[0]])
    probabilities = (logits / TEMPERATURE).softmax(-1)[:, best]
    return found | {
        "logit": logits[-1:, best],
        "lens": probabilities,
        "rollout": rolled[:1, 1:],
        "classes": best.tolist(),
    }


def combine(shares, logit):
    """What each patch gives to the class token, by attention times its slope."""
    slopes = torch.autograd.grad(logit, shares, retain_graph=True)
    joint = torch.eye(shares[0].shape[-1]).double()
    for A, slope in zip(shares, slopes, strict=True):
        joint = joint + (slope * A).clamp_min(0).mean(0) @ joint
    return joint[0, 1:].detach()


def remove_and_add(model, x, maps, classes):
    """The probability of a class while patches are set to the mean of the training images, the brightest first, and
    while they are put into the blurred image."""
    model, N = copy.deepcopy(model).double(), maps[0].numel()
    blurred = torch.from_numpy(gaussian_filter(x.numpy(), (0, 0, 5, 5), mode="nearest", truncate=1))
    found = {kind: torch.zeros(len(maps), N + 1) for kind in ("deletion", "insertion")}
    found |= {f"random_{kind}": torch.zeros(len(maps), 5, N + 1) for kind in ("deletion", "insertion")}
    random = torch.rand(5, N, generator=torch.Generator().manual_seed(0))
    runs = [("", (number,), heat) for number, heat in enumerate(maps)]
    runs += [("random_", (number, order), heat) for number in range(len(maps)) for order, heat in enumerate(random)]
    for start, place, heat in runs:
        order, h = sorted(range(N), key=lambda n: -heat[n]), model.patch_embed.grid[1]
        removed, added, P = x.clone(), blurred.clone(), model.patch_embed.patch_size
        for step in range(N + 1):
            if step:
                row, column = order[step - 1] // h * P, order[step - 1] % h * P
                removed[..., row : row + P, column : column + P] = 0
                added[..., row : row + P, column : column + P] = x[..., row : row + P, column : column + P]
            for name, image in (("deletion", removed), ("insertion", added)):
                says = (model(image) / TEMPERATURE).softmax(-1)[0, classes[place[0]]]
                found[start + name][(*place, step)] = says.detach()
    return {name: values.double() for name, values in found.items()}


def test_every_number_that_the_page_holds_is_that_of_the_weights():
    model = build_model()
    page, images = build(model, count=2)
    content = read(page)
    for image, one in zip(images, content["images"], strict=True):
        found = recompute(model, image.inputs, content["channels"])
        assert one["classes"] == [NAMES[k] for k in found["classes"]]
        assert base64.b64decode(one["pixels"]) == image.pixels.numpy().tobytes()
        assert one["difference"] < 1e-4
        packed = {**one["arrays"], "similarity": content["arrays"]["similarity"]}
        assert packed.keys() == found.keys() - {"share", "classes"}
        for name in packed:
            value, error = unpack(packed[name])
            assert torch.allclose(value, found[name], rtol=1e-4, atol=error + 2e-5), name
    weight = model.patch_embed.proj.weight.flatten(1)[content["channels"]].double()
    assert torch.allclose(unpack(content["arrays"]["filter"])[0], weight, atol=1e-4)


VARIANTS = {
    "mean": {"pool": "mean", "class_token": False},
    "map": {"pool": "map"},
    "registers": {"num_registers": 2, "embed_prefix": False},
    "rotary": {"position": "rotary"},
    "both": {"position": "learned_rotary"},
    "relative": {"position": "relative"},
    "fixed": {"position": "sincos_2d"},
    "none": {"position": "none"},
    "gated": {"mlp": "swiglu", "norm": "rms_norm", "layer_scale": 0.1, "qk_norm": True, "pre_norm": True},
    "tanh": {"representation_dim": 8},
    "distilled": {},
}
SAID = {
    "mean": "It reads the mean of the patches",
    "map": "It reads the attention pooling",
    "registers": "class token, register 1, register 2",
    "rotary": "rotary positions",
    "both": "rotary positions",
    "relative": "relative positions",
    "fixed": "sines and cosines",
    "none": "told no places",
    "gated": "RMSNorm",
    "tanh": "self.pre_logits(",
    "distilled": "the distillation token",
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_explained_as_it_computes(name):
    model = build_model(DistilledVisionTransformer if name == "distilled" else VisionTransformer, **VARIANTS[name])
    page, (image,) = build(model)
    one = read(page)["images"][0]
    assert SAID[name] in page
    with torch.no_grad(), record_attention(model.blocks) as attention:
        named = dict(stages(model, image.inputs))
    score, error = unpack(one["arrays"]["score"])
    shares = torch.cat(list(attention.values())).double()
    assert torch.allclose(score.softmax(-1), shares, atol=2 * error + 1e-5)
    best = [NAMES.index(known) for known in one["classes"]]
    lens = unpack(one["arrays"]["lens"])[0]
    assert torch.allclose(lens[-1], (named["logits"][0] / TEMPERATURE).softmax(-1)[best].double(), atol=1e-3)
    assert torch.allclose(unpack(one["arrays"]["stem"])[0], named["stem"][0].double(), atol=1e-3)
    v, output = (unpack(one["arrays"][key])[0] for key in ("v", "output"))
    assert torch.allclose(shares @ v, output, atol=1e-2)
    q, k = (unpack(one["arrays"][key])[0] for key in "qk")
    plain = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    bias = unpack(one["arrays"]["bias"])[0] if name == "relative" else 0
    assert torch.allclose(plain + bias, score, atol=1e-2)
    assert ("bias" in one["arrays"]) == (name == "relative")
    for key in ("evidence", "deletion", "insertion"):
        assert (key in one["arrays"]) == (name not in ("map", "distilled"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"position_place": "every_layer"}, "position_place"),
        ({"patch_size": None, "stem_channels": [8, 16, 32]}, "patch_size=null"),
    ],
)
def test_a_model_that_the_page_cannot_explain_is_refused_by_name(changes, said):
    model = build_model(**changes)
    given = Explained("run", model, NAMES, Half().probabilities, 1.0, MEAN, STD)
    with pytest.raises(ValueError, match=said):
        build_page(given, [], 3e6)


def test_quoted_lines_stand_in_the_source_where_the_page_says():
    page, _ = build(build_model())
    quoted = re.findall(r'<span class="where">(.+?):(\d+)</span><code>(.+?)</code>', page)
    assert len(quoted) > 15
    for file, number, text in quoted:
        line = (SRC / file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
        assert line.strip() == text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace(
            "&#x27;", "'"
        ).replace("&amp;", "&")


def test_a_line_that_is_missing_or_stands_twice_is_an_error():
    with pytest.raises(LookupError, match="0 lines"):
        find_line(attention_weights, "no such code")
    with pytest.raises(LookupError, match="softmax"):
        find_line(attention_weights, "softmax(")


def test_several_classes_are_told_by_a_sigmoid():
    class Several:
        temperature = TEMPERATURE
        probabilities = MultilabelClassification.probabilities

    page, _ = build(build_model(), task=Several)
    assert "sigmoid(head(" in page
    assert "softmax(head(" not in page


def test_a_page_keeps_within_its_bytes_by_keeping_fewer_tokens():
    model = build_model(image_size=224, patch_size=16, embed_dim=192, num_heads=3, in_chans=3)
    page, _ = build(model, count=2, most_bytes=1.2e6, mean=[0.5] * 3, std=[0.2] * 3)
    rows = read(page)["rows"]
    assert 600_000 < len(page) < 1.2e6
    assert 2 < len(rows) < 197
    assert rows == sorted(set(rows))
    with pytest.raises(ValueError, match="num_images=1"):
        build(model, count=2, most_bytes=4e5, mean=[0.5] * 3, std=[0.2] * 3)


def test_rows_are_all_tokens_or_the_prefix_and_patches_evenly_spaced():
    assert choose_rows(1, 17, 10, 170) == list(range(17))
    assert choose_rows(1, 17, 10, 30) == [0, 5, 13] or len(choose_rows(1, 17, 10, 30)) == 3
    assert choose_rows(1, 17, 10, 19) == []


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        pack(torch.tensor([1.0, float("nan")]))


def test_the_page_loads_nothing_and_escapes_names():
    page, _ = build(build_model())
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "http" not in page.replace("http-equiv", "")
    assert "a &lt;run&gt;" in page
    assert "<b>.png" not in page
