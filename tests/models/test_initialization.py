import itertools
import math

import pytest
import torch
from tiny import VARIANTS, vit

from vitlab.models import DistilledVisionTransformer, VisionTransformer
from vitlab.models.initialization import POSITION_STD

MODELS = {name: (VisionTransformer, changes) for name, changes in VARIANTS.items()}
MODELS["distilled"] = (DistilledVisionTransformer, {"num_registers": 2})


@pytest.mark.parametrize("scheme", ["normal", "xavier"])
@pytest.mark.parametrize("variant", MODELS)
def test_it_overwrites_every_parameter(variant, scheme):
    kind, changes = MODELS[variant]
    model = vit(kind, **changes | {"initialization": scheme})
    fixed = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    model.initialize()
    assert [name for name, parameter in model.named_parameters() if not parameter.isfinite().all()] == []
    assert all(torch.equal(buffer, fixed[name]) for name, buffer in model.named_buffers())


def test_weights_start_with_the_deviations_of_the_papers():
    deviations = {"cls_token": 1e-6, "patch_embed.proj.weight": (3 * 4 * 4) ** -0.5}
    for name, parameter in vit(in_chans=3, initialization="normal").named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            error = 4 * (2 * parameter.numel()) ** -0.5  # four deviations of a sample's deviation
            assert parameter.std().item() == pytest.approx(deviations.get(name, 0.02), rel=error), name


def test_tokens_tables_and_scales_start_as_their_papers_say():
    model = vit(num_registers=64, position="relative", layer_scale=1e-5, pool="map", norm="rms_norm")
    assert model.reg_token.std().item() == pytest.approx(1e-6, rel=0.1)
    assert model.attn_pool.latent.std().item() == pytest.approx(32**-0.5, rel=0.5)
    table = model.blocks[1].attn.rel_pos.relative_position_bias_table
    assert table.std().item() == pytest.approx(0.02, rel=0.2)
    assert (model.blocks[1].ls2.gamma == 1e-5).all()
    assert (model.blocks[1].norm1.weight == 1).all()
    for position, scheme in itertools.product(("learned_1d", "learned_2d"), POSITION_STD):
        model = vit(position=position, position_place="every_layer", initialization=scheme)
        for table in (model.pos_embed, model.blocks[1].pos_embed):
            assert table.std().item() == pytest.approx(POSITION_STD[scheme], rel=0.2)
        assert not torch.equal(model.pos_embed, model.blocks[1].pos_embed)


@pytest.mark.parametrize("embed_dim", [32, 192, 768])
def test_patches_and_places_are_about_as_loud_at_every_width(embed_dim):
    """What the first block sees is no patch without a place, nor a place without a patch; each branch adds its part."""
    torch.manual_seed(0)
    model = vit(initialization="xavier", embed_dim=embed_dim, num_heads=2)
    patches, _ = model.patch_embed(torch.randn(8, 1, 32, 32))
    places = model.pos_embed[:, model.num_prefix_tokens :]
    assert 1 / 4 < places.std().item() / patches.std().item() < 4
    x = patches + places
    for block in model.blocks:
        branches = block.attn(block.norm1(x)), block.mlp(block.norm2(x))
        assert all(branch.std().item() > 0.1 for branch in branches), [b.std().item() for b in branches]


def matrices(model):
    """Every matrix of a linear layer by name, those that are stored as one apart."""
    stored_as_one = {"qkv": 3, "kv": 2}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            last = name.split(".")[-1]
            gated = last == "fc1" and "attn_pool" not in name and model.blocks[0].mlp.__class__.__name__ == "SwiGLU"
            for i, weight in enumerate(module.weight.chunk(2 if gated else stored_as_one.get(last, 1))):
                yield f"{name} {i}", weight


@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
def test_xavier_is_uniform_within_its_bounds_with_zero_biases(mlp):
    """Glorot & Bengio, equation 16: U(-b, b) with b = sqrt(6/(fan in + fan out)), for Q, K and V each."""
    model = vit(initialization="xavier", mlp=mlp, pool="map", embed_dim=64)
    model.attn_pool.mlp = torch.nn.Identity()  # like those of the blocks
    found = 0
    for name, weight in matrices(model):
        bound = math.sqrt(6 / sum(weight.shape))
        assert bound * 0.98 < weight.abs().max().item() <= bound * (1 + 1e-6), name
        error = 4 * (0.8 / weight.numel()) ** 0.5 / 2  # of the deviation of a uniform sample
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=error), name
        found += 1
    assert found == 2 * (3 + 1 + 2 + (mlp == "swiglu")) + 4 + 1  # blocks, pooling, head
    biases = {name: p for name, p in model.named_parameters() if name.endswith("bias")}
    assert biases
    assert not any(bias.any() for bias in biases.values())


@pytest.mark.parametrize("scheme", ["normal", "xavier"])
@pytest.mark.parametrize("kind", [VisionTransformer, DistilledVisionTransformer])
def test_a_head_of_zeros_gives_its_bias_as_logits(kind, scheme):
    images = torch.randn(4, 1, 32, 32)
    logits = vit(kind, head_std=0.0, initialization=scheme)(images)
    assert torch.equal(logits, torch.zeros(4, 10))
    biased = vit(kind, head_std=0.0, head_bias=-math.log(10), initialization=scheme)(images)
    assert torch.equal(biased, torch.full((4, 10), -math.log(10)))


def test_head_std_and_bias_concern_the_head_alone():
    plain, changed = vit(), vit(head_std=0.5, head_bias=-2.0)
    assert changed.head.weight.std().item() == pytest.approx(0.5, rel=0.2)
    assert (changed.head.bias == -2).all()
    for (name, before), after in zip(plain.named_parameters(), changed.parameters(), strict=True):
        assert torch.equal(before, after) == (not name.startswith("head."))


def test_a_head_may_start_anew_on_other_weights():
    model = vit(head_std=0.0, head_bias=0.5)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    model.initialize_head(model.head)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
