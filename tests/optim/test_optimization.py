"""What conf/optimizer/ states reaches the parameters: each feature is shown to change what is learned."""

import pytest
import timm.optim
import torch
from conftest import vit_options
from timm.optim import Lamb, Lion
from timm.optim import muon as theirs
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from vitlab.models import MaskedAutoencoder, VisionTransformer, parameter_kinds
from vitlab.optim import Optimization
from vitlab.optim.muon import Muon

SIZES = {"image_size": 8, "num_classes": 3, "embed_dim": 8, "depth": 3, "mlp_ratio": 2.0, "patch_size": 4}
OPTIONS = {
    "algorithm": torch.optim.SGD,
    "lr": 0.1,
    "lr_scaling": "none",
    "lr_scaling_batch": 256,
    "global_batch_size": 64,
    "weight_decay": 0.0,
    "layer_decay": 1.0,
    "head_multiplier": 1.0,
    "backbone_multiplier": 1.0,
    "trained": "all",
    "unfreeze_step": None,
    "hidden_only": False,
}


def described(model):
    return dict(model.named_parameters()), parameter_kinds(model)


def optimization(**changes):
    return Optimization(**OPTIONS | changes)


def vit():
    torch.manual_seed(0)
    return VisionTransformer(**vit_options(**SIZES))


def moved(model, steps=1, factor=lambda step: 1.0, **changes):
    """How far a gradient of ones moves each parameter in some optimizer steps: its name, and the distance."""
    chosen = optimization(**changes)
    groups = chosen.groups(*described(model))
    optimizer = chosen.optimizer(groups)
    scheduler = LambdaLR(optimizer, factor)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        optimizer.step()
        scheduler.step()
    return {name: (before[name] - p.detach()).flatten()[0].item() for name, p in model.named_parameters()}


def test_head_and_backbone_learn_at_rates_of_their_own_under_a_schedule():
    model = vit()
    distances = moved(model, head_multiplier=10.0, backbone_multiplier=0.5, factor=lambda step: 0.2)
    for name, distance in distances.items():
        wanted = 0.1 * 0.2 * (10 if name.startswith("head.") else 0.5)
        assert distance == pytest.approx(wanted, rel=1e-4), name


def test_multipliers_and_layer_decay_multiply():
    distances = moved(vit(), head_multiplier=2.0, layer_decay=0.5)
    assert distances["head.weight"] == pytest.approx(0.2, rel=1e-4)
    assert distances["norm.weight"] == pytest.approx(0.1, rel=1e-4)
    assert distances["blocks.2.mlp.fc1.weight"] == pytest.approx(0.05, rel=1e-4)
    assert distances["patch_embed.proj.weight"] == pytest.approx(0.1 / 16, rel=1e-4)


def test_without_layer_decay_all_layers_move_alike():
    assert len({round(distance, 6) for distance in moved(vit()).values()}) == 1


@pytest.mark.parametrize(
    ("scaling", "batch", "lr"), [("none", 1024, 0.1), ("linear", 1024, 0.4), ("sqrt", 1024, 0.2), ("linear", 64, 0.025)]
)
def test_the_learning_rate_is_scaled_to_the_global_batch(scaling, batch, lr):
    chosen = optimization(lr_scaling=scaling, global_batch_size=batch)
    assert chosen.scaled_lr == pytest.approx(lr)
    assert all(group["lr"] == pytest.approx(lr) for group in chosen.groups(*described(vit())))


@pytest.mark.parametrize(("trained", "words"), [("head", ("head",)), ("attention", ("head", "attn"))])
def test_what_is_frozen_takes_no_gradient_and_does_not_move(trained, words):
    model = vit()
    distances = moved(model, trained=trained, weight_decay=0.5)
    learning = {name for name in distances if set(words) & set(name.split("."))}
    assert learning
    assert {name for name, distance in distances.items() if distance} == learning
    assert {name for name, p in model.named_parameters() if p.requires_grad} == learning


def test_the_head_of_any_model_can_be_trained_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(4, 2))
    assert {name for name, distance in moved(model, trained="head").items() if distance} == {"2.weight", "2.bias"}
    with pytest.raises(ValueError, match="needs a model with attention layers"):
        moved(model, trained="attention")


def test_what_learns_later_has_groups_of_its_own_that_say_from_when_on():
    model = vit()
    groups = optimization(trained="head", unfreeze_step=7).groups(*described(model))
    from_step = {name: group["from_step"] for group in groups for name in group["names"]}
    assert from_step.keys() == dict(model.named_parameters()).keys()
    assert all(step == (0 if name.startswith("head.") else 7) for name, step in from_step.items())
    assert len({group["name"] for group in groups}) == len(groups)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(("algorithm", "lr"), [(Lamb, 0.01), (Lion, 0.01), (Muon, 0.02)])
def test_optimizers_of_timm_take_the_groups_and_learn(algorithm, lr):
    chosen = optimization(algorithm=algorithm, lr=lr, weight_decay=0.01, hidden_only=algorithm is Muon)
    model = vit()
    optimizer = chosen.optimizer(chosen.groups(*described(model)))
    torch.manual_seed(1)
    images, classes = torch.randn(6, 1, 8, 8), torch.arange(6) % 3
    losses = []
    for _ in range(70):
        loss = nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_muon_takes_the_matrices_inside_the_model_and_its_fallback_the_rest():
    chosen = optimization(algorithm=Muon, hidden_only=True)
    model = vit()
    optimizer = chosen.optimizer(chosen.groups(*described(model)))
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    optimizer.step()
    by_muon = {name for name, p in model.named_parameters() if optimizer.state[p].get("use_muon")}
    assert by_muon == {n for n, p in model.named_parameters() if n.startswith("blocks.") and p.ndim == 2}


@pytest.mark.parametrize(
    ("capability", "dtype"), [("AVX2", torch.float32), ("DEFAULT", torch.float32), ("AVX512", torch.bfloat16)]
)
def test_muon_iterates_in_the_format_in_which_the_processor_is_fast(monkeypatch, capability, dtype):
    def iterate(gradient, *args, dtype, **options):
        seen.add(dtype)
        return gradient

    seen = set()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(theirs, "zeropower_via_newtonschulz", iterate)
    model = vit()
    chosen = optimization(algorithm=Muon, hidden_only=True)
    optimizer = chosen.optimizer(chosen.groups(*described(model)))
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    optimizer.step()
    assert seen == {dtype}
    assert theirs.zeropower_via_newtonschulz is iterate


def test_muon_is_that_of_timm(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    ours, others = vit(), vit()
    others.load_state_dict(ours.state_dict())
    images = torch.randn(2, 1, 8, 8)
    for algorithm, model in ((Muon, ours), (timm.optim.Muon, others)):
        chosen = optimization(algorithm=algorithm, hidden_only=True)
        optimizer = chosen.optimizer(chosen.groups(*described(model)))
        for _ in range(2):
            model(images).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(dict(ours.named_parameters()), dict(others.named_parameters()), rtol=0, atol=0)


def test_muon_leaves_what_a_masked_autoencoder_predicts_with_to_its_fallback():
    encoder = VisionTransformer(**vit_options())
    sizes = {"decoder_dim": 8, "decoder_depth": 1, "decoder_heads": 2}
    model = MaskedAutoencoder(encoder=encoder, patch_size=encoder.patch_embed.patch_size, **sizes)
    groups = optimization(hidden_only=True).groups(*described(model))
    by_muon = {name for group in groups if not group["use_fallback"] for name in group["names"]}
    matrices = {name for name, p in model.named_parameters() if p.ndim == 2}
    assert matrices - by_muon == {"decoder_pred.weight"}
    assert "decoder_embed.weight" in by_muon


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr_scaling": "square"}, "lr_scaling 'square' is not one of: none, linear, sqrt"),
        ({"trained": "mlp"}, "trained 'mlp' is not one of: all, head, attention"),
        ({"unfreeze_step": 5}, "has no effect with trained=all; set it to null"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        optimization(**changes)
