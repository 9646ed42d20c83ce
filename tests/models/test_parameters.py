"""What a model says about its own parameters: which take no weight decay, and which layer each belongs to."""

import pytest
import torch
from conftest import groups_of
from tiny import VARIANTS, vit

from vitlab.models import DistilledVisionTransformer, VisionTransformer

TOKENS = ("cls_token", "reg_token", "dist_token", "pos_embed", "latent", "relative_position_bias_table", "gamma")
MODELS = {name: (VisionTransformer, changes) for name, changes in VARIANTS.items()}
MODELS["distilled"] = (DistilledVisionTransformer, {"num_registers": 2})


@pytest.fixture(params=MODELS)
def model(request):
    kind, changes = MODELS[request.param]
    return vit(kind, **changes)


def test_biases_norms_tokens_and_positions_take_no_weight_decay(model):
    names = {name for name, _ in model.named_parameters()}
    norms = {name for name, module in model.named_modules() if "Norm" in type(module).__name__}
    exempt = {
        name
        for name in names
        if name.endswith("bias") or name.rpartition(".")[0] in norms or name.split(".")[-1] in TOKENS
    }
    assert model.no_weight_decay() == exempt
    assert all(name.endswith(".weight") for name in names - exempt)


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
def test_each_parameter_is_in_exactly_one_group(model, layer_decay):
    groups = groups_of(model, lr=1.0, weight_decay=0.1, layer_decay=layer_decay)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())
    assert len(set(grouped)) == len(grouped)
    for group in groups:
        for name in group["names"]:
            assert group["weight_decay"] == (0.0 if name in model.no_weight_decay() else 0.1)
            assert group["lr"] == layer_decay ** (3 - model.get_layer_id(name))


def test_layers_count_from_the_embeddings_to_the_head(model):
    embeddings = ("patch_embed.", "cls_token", "reg_token", "dist_token", "pos_embed", "norm_pre.")
    after = ("norm.", "fc_norm.", "attn_pool.", "pre_logits.", "head.", "head_dist.")
    for name, _ in model.named_parameters():
        if name.startswith("blocks."):
            assert model.get_layer_id(name) == int(name.split(".")[1]) + 1
        else:
            assert name.startswith(embeddings) != name.startswith(after), name
            assert model.get_layer_id(name) == (0 if name.startswith(embeddings) else 3)


def test_blocks_of_two_digits_are_layers_of_their_own():
    model = vit(depth=11, embed_dim=8)
    layers = {}
    for name, _ in model.named_parameters():
        layers.setdefault(model.get_layer_id(name), set()).add(name)
    assert sorted(layers) == list(range(13))
    for block in range(11):
        assert layers[block + 1] == {f"blocks.{block}.{name}" for name, _ in model.blocks[block].named_parameters()}


def test_a_shared_table_is_one_parameter_that_steps_once():
    model = vit(position_place="every_layer_shared", depth=4)
    assert [name for name, _ in model.named_parameters() if name.endswith("pos_embed")] == ["pos_embed"]
    groups = groups_of(model, lr=0.1, weight_decay=0.0)
    before = model.pos_embed.detach().clone()
    model(torch.randn(2, 1, 32, 32)).sum().backward()
    gradient = model.pos_embed.grad.clone()
    torch.optim.SGD(groups).step()
    torch.testing.assert_close(model.pos_embed.detach(), before - 0.1 * gradient)
