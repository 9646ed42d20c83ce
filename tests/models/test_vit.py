import ast
import inspect
import textwrap

import pytest
import torch
from conftest import groups_of
from tiny import VARIANTS, randomized, vit

from vitlab.layers import padding_mask, patchify
from vitlab.losses import softmax_cross_entropy
from vitlab.models import VisionTransformer


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On cores that are busy, two threads make these tiny products 80 times slower than one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# -- the forward pass


@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - {"convolutional_stem"}))
def test_patches_and_images_give_the_same_logits(variant):
    model, images = vit(**VARIANTS[variant] | {"image_size": [12, 20]}).eval(), torch.randn(2, 1, 12, 20)
    torch.testing.assert_close(model(patchify(images, 4)), model(images))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("image_size", [12, [12, 20]])
def test_every_option_gives_logits_and_gradients_to_all(variant, image_size):
    model = randomized(vit(**VARIANTS[variant] | {"image_size": image_size})).train()
    images = torch.randn(4, 1, *model.patch_embed.image_size)
    logits = model(images)
    assert logits.shape == (4, 10)
    logits.square().sum().backward()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    if variant == "relative":  # its class token looks at no offsets, and in the last block only it is read
        assert without == {"blocks.1.attn.rel_pos.relative_position_bias_table"}
    else:
        assert without == set()


@pytest.mark.parametrize("changes", [{}, *({"position": kind} for kind in ("relative", "rotary"))], ids=str)
def test_written_attention_gives_the_same_logits_and_gradients(changes):
    images, results = torch.randn(4, 1, 32, 32), []
    for attention in ("fused", "written"):
        model = randomized(vit(attention=attention, qk_norm=True, **changes))
        logits = model(images)
        logits.square().mean().backward()
        results.append((logits, {name: parameter.grad for name, parameter in model.named_parameters()}))
    torch.testing.assert_close(results[1][0], results[0][0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(results[1][1], results[0][1], atol=1e-5, rtol=1e-4)


def test_masked_patches_are_as_if_not_there():
    """Where the pool is the class token, and positions do not count the patches that are gone."""
    model = randomized(vit(position="none"))
    patches = torch.randn(2, 64, 16)
    present = torch.arange(1 + 64) <= 40
    tokens = model.forward_features(patches, None, padding_mask(present.expand(2, -1)))[:, :41]
    torch.testing.assert_close(tokens, model.forward_features(patches[:, :40], (5, 8)), atol=1e-5, rtol=1e-5)


def test_the_tanh_layer_stands_between_pooling_and_head():
    model, images = randomized(vit(representation_dim=24)), torch.randn(4, 1, 32, 32)
    pooled = model.forward_features(images)[:, 0]
    hidden = torch.tanh(pooled @ model.pre_logits.fc.weight.T + model.pre_logits.fc.bias)
    assert hidden.shape == (4, 24)
    expected = hidden @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(images), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rate", ["drop_rate", "attn_drop_rate", "drop_path_rate"])
def test_dropout_and_drop_path_act_only_in_training(rate):
    model, images = vit(**{rate: 0.5}), torch.randn(8, 1, 32, 32)
    expected = vit()(images)
    assert not torch.allclose(model.train()(images), expected, atol=1e-4)
    assert torch.equal(model.eval()(images), expected)


def test_the_forward_pass_is_at_most_15_lines_without_a_branch():
    source = textwrap.dedent(inspect.getsource(VisionTransformer.forward))
    assert len(source.splitlines()) <= 15
    assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If | ast.IfExp | ast.Match)]


# -- learning

LOSSES = [
    *(2.305672, 2.295254, 2.283056, 2.255620, 2.175202, 2.219319, 2.131821, 2.034207, 2.012434, 1.917365),
    *(1.868499, 1.838452, 1.785656, 1.723919, 1.664276, 1.622755, 1.579263, 1.524219, 1.471823, 1.429844),
]


def test_twenty_steps_give_the_recorded_losses():
    """Recorded with torch 2.15 on a CPU; float64, one thread, and an unfused attention agree within 1e-6."""
    model = vit()
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:  # trunc_normal_ draws other numbers in other versions of torch; normal_ does not
            torch.nn.init.normal_(parameter, std=0.02)
    images, classes = torch.randn(32, 1, 32, 32), torch.arange(32) % 10
    optimizer = torch.optim.AdamW(groups_of(model, lr=3e-3, weight_decay=0.05))
    losses = []
    for _ in range(20):
        loss = softmax_cross_entropy(model(patchify(images, 4)), classes, label_smoothing=0.1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == pytest.approx(LOSSES, rel=1e-3)
    assert losses[-1] < 0.7 * losses[0]
