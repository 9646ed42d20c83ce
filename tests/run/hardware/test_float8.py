"""Wide layers that multiply in float8: where they can, whom it concerns, and what stays as it is."""

import copy
import functools
import itertools
import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from conftest import BARE, evaluated, refuses, vit_options
from one_process import one_process
from torch import nn
from torch.distributed.fsdp import fully_shard

from vitlab.checkpoints import file
from vitlab.distributed.fully_sharded import units
from vitlab.distributed.sharding import get_own_parameters
from vitlab.errors import ConfigError
from vitlab.models import VisionTransformer, parameter_kinds
from vitlab.models.activation_checkpointing import checkpoint_activations
from vitlab.optim import parameter_groups
from vitlab.run.hardware import float8
from vitlab.run.hardware.float8 import check_float8, find_trainable_layers, use_float8, wide_layers

SHORT = [*BARE, "trainer.max_steps=3", "global_batch_size=64", "trainer.log_every_n_steps=1"]
GPU = torch.device("cuda", 0)


@pytest.fixture
def torchao():
    return pytest.importorskip("torchao", reason="float8=true needs the extra: pip install 'vitlab[float8]'")


@pytest.fixture
def narrow(monkeypatch):
    """The smallest model is wide enough."""
    monkeypatch.setattr(float8, "gains", lambda inputs, outputs, kind: True)


@pytest.fixture
def hopper(monkeypatch):
    """A GPU that has all that is asked for, and torchao beside it."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    installed = SimpleNamespace(Float8LinearConfig=None, convert_to_float8_training=None)
    monkeypatch.setitem(sys.modules, "torchao.float8", installed)


def vit(**changes):
    return VisionTransformer(**vit_options(image_size=16, depth=2, **changes))


# -- whom it concerns


def test_only_linear_learning_layers_that_are_wide_in_multiples_of_16_are_taken(narrow):
    model = vit(embed_dim=96, mlp_ratio=None, mlp_dim=200)
    assert set(wide_layers(model)) == {f"blocks.{i}.attn.{name}" for i in (0, 1) for name in ("qkv", "proj")}
    names = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    assert set(find_trainable_layers(model)) == {f"blocks.{i}.{name}" for i in (0, 1) for name in names}


def test_layers_of_vit_l_that_torchao_would_leave_stay():
    """N, K of attn.qkv, attn.proj, mlp.fc1, mlp.fc2: 3072, 1024; 1024, 1024; 4096, 1024; 1024, 4096."""
    sizes = {"qkv": (1024, 3072), "proj": (1024, 1024), "fc1": (1024, 4096), "fc2": (4096, 1024)}
    assert {name for name, (k, n) in sizes.items() if float8.gains(k, n, True)} == {"qkv", "fc1"}
    assert not [name for name, (k, n) in sizes.items() if float8.gains(k, n, "rowwise")]


@pytest.mark.parametrize(("kind", "recipe"), [(True, "tensorwise"), ("rowwise", "rowwise")])
def test_the_sizes_are_those_of_torchao(torchao, kind, recipe):
    from torchao.float8.float8_linear_utils import _auto_filter_for_recipe

    theirs = _auto_filter_for_recipe(recipe, [])
    for k, n in itertools.product((512, 1024, 1040, 2048, 2064, 4096, 4112), repeat=2):
        assert float8.gains(k, n, kind) == theirs(nn.Linear(k, n, device="meta"), "a"), (k, n)


# -- where it cannot be


@pytest.mark.parametrize("entry", ["train", "check"])
def test_without_a_gpu_it_is_refused_before_work_starts(cli, tmp_path, entry):
    words = ["model=vit_mu4", "trainer=cpu", "trainer.precision=bf16-mixed", "float8=true"]
    run = cli(entry, *words, *(["logger=none", "hydra.run.dir=run"] if entry == "train" else []), tiny=False)
    assert run.status == 2
    assert refuses(run, "float8=true needs a CUDA device of compute capability 8.9 or more, and the run is on cpu")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_an_older_gpu_is_named(hopper, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    with pytest.raises(ConfigError, match=r"8\.9 or more, and a card has 8\.6; set it to false"):
        check_float8(vit(), GPU, "bf16-mixed")


@pytest.mark.parametrize("installed", [None, SimpleNamespace()], ids=["missing", "too_old"])
def test_without_a_torchao_that_can_do_it_the_extra_is_named(hopper, monkeypatch, installed):
    monkeypatch.setitem(sys.modules, "torchao.float8", installed)
    with pytest.raises(ConfigError, match=r"needs torchao: pip install 'vitlab\[float8\]'"):
        check_float8(vit(), GPU, "bf16-mixed")


def test_without_compile_it_is_refused(hopper, narrow):
    with pytest.raises(ConfigError, match=r"float8=rowwise is slower than bfloat16 .* set compile=true"):
        check_float8(vit(), GPU, "bf16-mixed", "rowwise", False)


def test_another_precision_is_refused(hopper):
    with pytest.raises(ConfigError, match=r"float8=true needs trainer\.precision=bf16-mixed, not 32-true"):
        check_float8(vit(), GPU, "32-true")


@pytest.mark.parametrize(
    ("model", "widest"), [(functools.partial(vit, embed_dim=192), 768), (lambda: nn.Linear(2048, 2048), 0)]
)
def test_a_model_without_a_wide_layer_is_refused_with_the_width_it_has(hopper, model, widest):
    with pytest.raises(
        ConfigError, match=f"no layer that learns has more than 1024 outputs, .*; the widest has {widest}: set"
    ):
        check_float8(model(), GPU, "bf16-mixed")


@pytest.mark.parametrize(("unfreeze_step", "refused"), [(None, True), (2, False)])
def test_blocks_that_never_learn_are_no_reason_for_it(hopper, narrow, unfreeze_step, refused):
    model = vit()
    given = {"lr": 1.0, "weight_decay": 0.0, "trained": "head", "unfreeze_step": unfreeze_step}
    parameter_groups(dict(model.named_parameters()), parameter_kinds(model), **given)
    with pytest.raises(ConfigError, match="no layer that learns has") if refused else nullcontext():
        check_float8(model, GPU, "bf16-mixed")


def test_what_has_all_that_is_refused_nothing(hopper, narrow):
    check_float8(vit(), GPU, "bf16-mixed")


# -- what it computes


def relative_error(found, exact):
    return ((found - exact).norm() / exact.norm()).item()


def gradients(model, x):
    model.zero_grad()
    torch.manual_seed(1)  # dropout, drop path
    model(x).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_a_layer_that_learns_rounds_to_3_bits_forward_and_2_backward(torchao, narrow):
    """By a 16th and an 8th at most for each number, by less for a sum of many; tokens in no multiple of 16."""
    torch.manual_seed(0)
    plain = vit()
    model = copy.deepcopy(plain)
    assert use_float8(model, emulated=True) == len(find_trainable_layers(plain)) == 8
    for name, layer in find_trainable_layers(plain).items():
        x = torch.randn(3, 17, layer.in_features, requires_grad=True)
        outward = torch.randn(3, 17, layer.out_features)
        found = []
        for one in (layer, model.get_submodule(name)):
            one.train()
            found.append((y := one(x), *torch.autograd.grad(y, (x, one.weight), outward)))
        for exact, rounded, bound in zip(*found, (1 / 16, 1 / 8, 1 / 8), strict=True):
            assert 1e-3 < relative_error(rounded, exact) < bound


def test_an_evaluation_is_not_rounded(torchao, narrow):
    plain = vit()
    model = copy.deepcopy(plain)
    use_float8(model, emulated=True)
    x = torch.randn(3, 1, 16, 16)
    assert not torch.equal(model.train()(x), plain.train()(x))
    assert torch.equal(model.eval()(x), plain.eval()(x))


def test_weights_are_the_same_under_the_same_names(torchao, narrow):
    model = vit()
    before = dict(model.named_parameters())
    use_float8(model, emulated=True)
    after = dict(model.named_parameters())
    assert before.keys() == after.keys() == set(model.state_dict()) - set(dict(model.named_buffers()))
    assert all(after[name] is parameter for name, parameter in before.items())


def test_a_copy_runs_the_copy_and_activations_may_be_computed_again(torchao, narrow):
    torch.manual_seed(0)
    model = vit()
    use_float8(model, emulated=True)
    twin = copy.deepcopy(model)
    checkpoint_activations(twin)
    model.train(), twin.train()
    x = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(gradients(twin, x), gradients(model, x))
    with torch.no_grad():
        twin.blocks[0].mlp.fc1.weight.zero_()
    assert not torch.allclose(gradients(twin, x), gradients(model, x))


def test_sharded_weights_are_multiplied_alike(torchao, narrow):
    torch.manual_seed(0)
    model = vit()
    use_float8(model, emulated=True)
    model.train()
    twin, x = copy.deepcopy(model), torch.randn(2, 1, 16, 16)
    with one_process() as mesh:
        for block in units(twin):
            fully_shard(block, mesh=mesh)
        fully_shard(twin, mesh=mesh)
        assert twin.state_dict().keys() == model.state_dict().keys()
        twin(x).square().sum().backward()
        found = {name: parameter.grad.full_tensor() for name, parameter in get_own_parameters(twin).items()}
    gradients(model, x)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


@pytest.mark.slow
def test_a_run_in_float8_is_gone_on_with_and_scored_without(torchao, narrow, cli):
    with pytest.MonkeyPatch.context() as emulated:
        emulated.setattr(float8, "check_float8", lambda *given: None)
        emulated.setattr(float8, "use_float8", functools.partial(use_float8, emulated=True))
        run = cli("train", *SHORT, "float8=true", folder="run")
    assert run.status == 0, run.err
    plain = cli("train", *SHORT, folder="plain")
    states = [file.read(one.folder / "checkpoints" / "latest.ckpt")["state_dict"] for one in (run, plain)]
    assert states[0].keys() == states[1].keys()
    assert not all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    scored = cli("evaluate", f"run={run.folder}")
    assert scored.status == 0, scored.err
    tested, scored = json.loads((run.folder / "result.json").read_text()), evaluated(run.folder)
    assert scored["test/loss"] == pytest.approx(tested["test"]["test/loss"], rel=1e-6)
    again = cli("train", "resume=run", "float8=false", "trainer.max_steps=4", tiny=False)
    assert again.status == 0, again.err
