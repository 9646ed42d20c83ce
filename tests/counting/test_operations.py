import pytest
import torch
from conftest import vit_options

from vitlab.counting import costs, multiply_accumulates, sequence_cost, total
from vitlab.models import VisionTransformer, torchvision_model


def vit(**changes):
    return VisionTransformer(**vit_options(**changes))


def test_b16_takes_17_564_billion_multiply_accumulates():
    """Per token and layer 12·D² in matrices; per pair of tokens 2·D in QKᵀ and AV; then patches and head."""
    with torch.device("meta"):
        model = vit(image_size=224, patch_size=16, in_chans=3, num_classes=1000, embed_dim=768, depth=12, num_heads=12)
    weights = 12 * 197 * 12 * 768**2 + 196 * 768 * 768 + 768 * 1000
    products = 12 * 2 * 197**2 * 768
    assert round((weights + products) / 1e9, 3) == 17.564
    assert multiply_accumulates(model, (3, 224, 224)) == weights + products
    assert multiply_accumulates(model, (3, 224, 224), attention=False) == weights


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pool": "map", "class_token": False},
        {"attention": "written", "position": "rotary"},
        {"position_place": "every_layer_shared"},
        {"mlp": "swiglu", "num_registers": 3},
        {"patch_size": None, "stem_channels": [8, 16]},
    ],
)
def test_the_parts_make_up_the_whole(changes):
    model = vit(**changes)
    parts = costs(model, (1, 32, 32))
    whole = total(parts)
    assert whole.parameters == sum(p.numel() for p in model.parameters())
    T, D, L = 64 + model.num_prefix_tokens, 32, 2
    assert parts["blocks.*.attn"].attention == L * 2 * T * T * D
    hidden = 128 * (3 if changes.get("mlp") == "swiglu" else 2)
    assert parts["blocks.*.mlp"].weights == L * T * D * hidden
    assert parts["blocks.*.attn"].weights == L * T * 4 * D * D
    assert model(torch.zeros(1, 1, 32, 32)).isfinite().all()  # and the model still is what it was


def test_a_resnet_is_counted_too():
    model = torchvision_model(name="resnet18", patch_size=None, in_chans=3, num_classes=1000, small_images=False)
    assert round(multiply_accumulates(model, (3, 224, 224)) / 1e9, 2) == 1.81  # He et al., 2016, table 1: 1.8 billion


def test_patches_make_sequences_short():
    sizes = {"num_prefix_tokens": 0, "embed_dim": 8, "depth": 2, "weights_per_token": 100}
    tokens = [sequence_cost(28, patch, **sizes).tokens for patch in (1, 4, 7)]
    assert tokens == [784, 49, 16]
    pixels = sequence_cost(224, 1, **sizes)
    assert pixels == (50_176, 50_176**2, 50_176 * 100, 2 * 50_176**2 * 8 * 2)


def test_what_is_done_in_no_part_is_counted_all_the_same():
    from timm.models.vision_transformer import ParallelScalingBlock
    from timm.models.vision_transformer import VisionTransformer as Timm
    from torch.utils.flop_counter import FlopCounterMode

    model = Timm(32, 4, 1, num_classes=10, embed_dim=32, depth=2, num_heads=2, block_fn=ParallelScalingBlock)
    counter = FlopCounterMode(display=False)
    with torch.device("meta"):
        hollow = Timm(32, 4, 1, num_classes=10, embed_dim=32, depth=2, num_heads=2, block_fn=ParallelScalingBlock)
    with torch.no_grad(), counter:
        hollow.eval()(torch.empty(1, 1, 32, 32, device="meta"))
    assert costs(model, (1, 32, 32))["in no part"].weights > 0
    assert multiply_accumulates(model, (1, 32, 32)) == counter.get_total_flops() // 2
