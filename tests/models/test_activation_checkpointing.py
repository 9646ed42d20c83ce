import copy

import pytest
import timm
import torch
from conftest import vit_options
from tiny import vit

from vitlab.models import MaskedAutoencoder, VisionTransformer
from vitlab.models.activation_checkpointing import checkpoint_activations

DROPS = {"drop_rate": 0.1, "attn_drop_rate": 0.1, "drop_path_rate": 0.3, "depth": 3}
IMAGES = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))


def ours(**changes):
    return vit(**DROPS | changes)


def timms(**changes):
    torch.manual_seed(0)
    options = {"drop_rate": 0.1, "attn_drop_rate": 0.1, "proj_drop_rate": 0.1, "drop_path_rate": 0.3, "depth": 3}
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, in_chans=1, num_classes=10, embed_dim=24, **options | changes
    )


def beit():
    """Its blocks take keywords."""
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "in_chans": 1, "num_classes": 10, "embed_dim": 24, "depth": 3}
    sizes |= {"proj_drop_rate": 0.1, "drop_path_rate": 0.3}
    return timm.create_model("beit_base_patch16_224", num_heads=2, use_shared_rel_pos_bias=True, **sizes)


KINDS = {
    "ours": ours,
    "every_layer": lambda: ours(position_place="every_layer_shared"),
    "written": lambda: ours(attention="written"),
    "rotary": lambda: ours(position="rotary"),
    "timm": timms,
    "keywords": beit,
    "autoencoder": lambda: MaskedAutoencoder(
        encoder=ours(), patch_size=4, decoder_dim=16, decoder_depth=2, decoder_heads=2
    ),
}
each = pytest.mark.parametrize("name", KINDS)


def step(model, seed=3, **autocast):
    """Loss, gradients by name, and the bytes kept for the backward pass, the weights left out."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    torch.manual_seed(seed)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=bool(autocast)),
    ):
        loss = model(IMAGES).float().square().mean()
    size = sum(storage.nbytes() for storage in kept.values())
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, size


def blocks_of(model):
    return [module for module in model.modules() if hasattr(module, "attn")]


def parameters_of_blocks(model):
    return [parameter for block in blocks_of(model) for parameter in block.parameters()]


def calls_of(blocks):
    """A list that grows with each call of a block's attention."""
    calls = []
    for block in blocks:
        block.attn.register_forward_hook(lambda *_: calls.append(1))
    return calls


@each
@pytest.mark.parametrize("autocast", [{}, {"bf16": True}], ids=["float32", "bf16"])
def test_loss_and_gradients_are_the_same_bit_for_bit_and_less_is_kept(name, autocast):
    plain, frugal = KINDS[name]().train(), KINDS[name]().train()
    checkpoint_activations(frugal)
    expected, found = step(plain, **autocast), step(frugal, **autocast)
    assert torch.equal(found[0], expected[0])
    assert found[1].keys() == expected[1].keys()
    for key, gradient in expected[1].items():
        assert torch.equal(found[1][key], gradient), key
    assert found[2] < 0.4 * expected[2]
    assert not torch.equal(step(frugal, seed=4)[0], found[0])  # something is drawn


@each
def test_names_stay_what_they_are(name):
    plain, frugal = KINDS[name](), KINDS[name]()
    checkpoint_activations(frugal)
    assert list(frugal.state_dict()) == list(plain.state_dict())
    frugal.load_state_dict(plain.state_dict())
    assert [type(module) for module in frugal.modules()] == [type(module) for module in plain.modules()]


@each
def test_blocks_are_computed_again_for_a_backward_pass_alone(name):
    model = KINDS[name]().train()
    checkpoint_activations(model)
    calls, count = calls_of(blocks_of(model)), len(blocks_of(model))
    model(IMAGES).sum().backward()
    assert len(calls) == 2 * count
    calls.clear()
    with torch.no_grad():
        model(IMAGES)
    assert len(calls) == count
    calls.clear()
    model.requires_grad_(False)(IMAGES)
    assert len(calls) == count


def test_it_is_the_same_asked_twice():
    model = ours().train()
    checkpoint_activations(model)
    checkpoint_activations(model)
    calls = calls_of(blocks_of(model))
    model(IMAGES).sum().backward()
    assert len(calls) == 6


@each
def test_a_copy_runs_its_own_blocks(name):
    """As an average of the weights does, which copies the model."""
    model = KINDS[name]().train()
    checkpoint_activations(model)
    twin = copy.deepcopy(model)
    before = step(model)
    with torch.no_grad():
        for parameter in parameters_of_blocks(model):
            parameter.zero_()
    model.zero_grad()
    after = step(twin)
    assert torch.equal(after[0], before[0])
    assert all(p.grad is not None for p in parameters_of_blocks(twin))
    assert all(p.grad is None for p in parameters_of_blocks(model))


@pytest.mark.slow
def test_a_compiled_model_computes_the_same():
    plain, frugal = (
        ours(drop_rate=0.0, attn_drop_rate=0.0, drop_path_rate=0.0),
        ours(drop_rate=0.0, attn_drop_rate=0.0, drop_path_rate=0.0),
    )
    checkpoint_activations(frugal)
    names = list(frugal.state_dict())
    frugal.compile(fullgraph=True, backend="aot_eager")
    (loss, gradients, _), (expected, expected_gradients, _) = step(frugal.train()), step(plain.train())
    torch.testing.assert_close(loss, expected)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, msg=name)
    assert list(frugal.state_dict()) == names


def test_models_without_blocks_and_with_batch_norm_are_refused():
    with pytest.raises(ValueError, match="ResNet has no list named blocks"):
        checkpoint_activations(timm.create_model("resnet10t"))
    with pytest.raises(ValueError, match="EfficientNet contain BatchNorm"):
        checkpoint_activations(timm.create_model("efficientnet_b0"))
    checkpoint_activations(VisionTransformer(**vit_options()))


def test_blocks_that_wait_to_learn_are_computed_again_too():
    """They are in evaluation mode until optimizer.unfreeze_step, and take part in the backward pass."""
    waiting, frozen = ours().eval(), ours().eval()
    whole = step(waiting)
    checkpoint_activations(waiting)
    loss, _, size = step(waiting)
    assert loss.equal(whole[0])
    assert size < whole[2] / 2
    for part in (frozen.patch_embed, frozen.blocks):
        part.requires_grad_(False)
    frozen.cls_token.requires_grad_(False)
    frozen.pos_embed.requires_grad_(False)
    kept = step(frozen)[2]
    checkpoint_activations(frozen)
    assert step(frozen)[2] == kept  # nothing of them is kept anyway
