from functools import partial

import pytest
import torch
from conftest import vit_options

from vitlab.counting import activation_bytes, optimizer_bytes_per_value, training_memory
from vitlab.models import VisionTransformer
from vitlab.models.activation_checkpointing import checkpoint_activations


def vit(**changes):
    return VisionTransformer(**vit_options(**{"attention": "fused"} | changes))


def measured(model, batch_shape, bf16):
    """Bytes of what autograd really keeps, each storage once."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        model.train()(torch.zeros(batch_shape)).float().sum()
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("changes", [{}, {"position": "relative", "drop_rate": 0.1}, {"attention": "written"}])
def test_activations_are_those_that_autograd_keeps(changes, bf16):
    model = vit(**changes)
    for B in (1, 3):
        assert activation_bytes(model, (B, 1, 32, 32), bf16) == measured(model, (B, 1, 32, 32), bf16)


def test_a_model_that_computes_again_keeps_the_inputs_of_its_blocks():
    model, whole = vit(), activation_bytes(vit(), (3, 1, 32, 32), False)
    assert checkpoint_activations(model) == 2
    assert activation_bytes(model, (3, 1, 32, 32), False) == measured(model, (3, 1, 32, 32), False)
    assert activation_bytes(model, (3, 1, 32, 32), False) < whole / 3


def test_a_model_that_chooses_is_counted_by_the_fused_kernel():
    counts = [activation_bytes(vit(attention=kind), (2, 1, 32, 32), True) for kind in ("auto", "fused", "written")]
    assert counts[0] == counts[1] < counts[2]


def test_the_written_attention_keeps_its_weights_and_the_fused_one_does_not():
    fused, written = (activation_bytes(vit(attention=kind), (1, 1, 32, 32), False) for kind in ("fused", "written"))
    scores = 2 * 2 * 65 * 65 * 4  # layers, heads, pairs of tokens, bytes
    assert written - fused > scores


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [(torch.optim.AdamW, 8), (partial(torch.optim.SGD, momentum=0.9), 4), (torch.optim.SGD, 0)],
)
def test_an_optimizer_tells_what_it_keeps(optimizer, expected):
    assert optimizer_bytes_per_value(optimizer) == expected


def test_while_a_block_is_computed_again_its_activations_are_there():
    model, optimizer = vit(depth=4), torch.optim.AdamW
    whole = training_memory(model, (1, 32, 32), False, optimizer)
    block = whole.per_image - training_memory(vit(depth=3), (1, 32, 32), False, optimizer).per_image
    checkpoint_activations(model)
    kept = training_memory(model, (1, 32, 32), False, optimizer)
    assert kept.recompute_blocks(whole, 4).per_image == pytest.approx(kept.per_image + block, rel=0.1)


def test_memory_is_weights_gradients_state_and_activations():
    model = vit()
    count = sum(p.numel() for p in model.parameters())
    model.head.requires_grad_(False)
    frozen = sum(p.numel() for p in model.head.parameters())
    memory = training_memory(model, (1, 32, 32), False, torch.optim.AdamW)
    assert memory.fixed == pytest.approx(16 * count - 12 * frozen, rel=0.02)  # and the position table, laid out once
    one, two = (activation_bytes(model, (B, 1, 32, 32), False) for B in (1, 2))
    assert memory.per_image == two - one
    assert memory.largest_batch(memory.fixed) == 0
    assert memory.largest_batch(round((memory.fixed + 10.5 * memory.per_image) / 0.9)) == 10
