"""A head is copied only where all before it is copied too, and computes the same; a refusal says what to set."""

import json
import random

import pytest
import timm
import torch
from advice import OWN, follow, relative
from conftest import vit_options
from foreign import huggingface_vit, loaded, ours, randomized, timm_vit, torchvision_vit, write_npz, write_timm
from safetensors.torch import save_file

from vitlab.checkpoints import file
from vitlab.errors import CheckpointError
from vitlab.models import DistilledVisionTransformer
from vitlab.weights import load

# -- of each library


def write_run(path, model, target="VisionTransformer", **node):
    """A checkpoint with what is read of one when weights are taken from it."""
    config = dict.fromkeys(("name", "seed", "monitor", "global_batch_size", "task", "optimizer", "schedule", "trainer"))
    config |= {"data": {}, "model": {"_target_": f"vitlab.models.{target}", **node}}
    run = {"config": config, "choices": {}, "class_names": [], "device_batch_size": 1, "fingerprint": ""}
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    file.write({"state_dict": state, "global_step": 1, "run": run}, path)
    return path


@pytest.mark.parametrize("seed", range(12))
def test_runs(seed, tmp_path):
    choose = random.Random(seed)
    first, second = choose.choice(OWN), choose.choice(OWN)
    source = ours(**first).eval()
    facts = {"image_size": 32, "patch_size": 4, "num_heads": 2, "norm_eps": 1e-6, "mlp": "gelu"}
    path = write_run(tmp_path / "best.ckpt", source, **facts, position="learned_1d", pool=first["pool"])
    assert follow(path, source, **second)[0] == "equal"


@pytest.mark.parametrize("own", OWN[::5], ids=str)
@pytest.mark.parametrize("pool", ["token", "avg", "map"])
def test_npz(pool, own, tmp_path):
    source = timm_vit(global_pool=pool, fc_norm=False, class_token=pool == "token")
    write_npz(tmp_path / "a.npz", source.state_dict(), 2, big_vision=True)
    assert follow(tmp_path / "a.npz", source, **own)[0] == "equal"


@pytest.mark.parametrize(
    "own", [{"pool": "mean"}, {"pool": "map", "class_token": False}, {"representation_dim": 24}], ids=str
)
@pytest.mark.parametrize("width", [None, 40])
def test_torchvision(width, own, tmp_path):
    source = torchvision_vit(representation_size=width)
    torch.save(source.state_dict(), tmp_path / "a.pth")
    assert follow(tmp_path / "a.pth", source, **own)[0] == "equal"


def test_what_a_bare_file_does_not_say_is_said(tmp_path):
    after = timm_vit(global_pool="avg")
    save_file(after.state_dict(), tmp_path / "after.safetensors")
    assert follow(tmp_path / "after.safetensors", after)[1]["pool"] == "mean"  # what a norm after pooling is for
    save_file(timm_vit().state_dict(), tmp_path / "before.safetensors")
    for pool in ("cls", "mean"):
        _, report = loaded(tmp_path / "before.safetensors", pool=pool, fc_norm=False)
        assert report.assumed == {
            "num_heads": 2, "norm_eps": 1e-6, "mlp": "gelu", "position": "learned_1d", "pool": pool,
        }  # fmt: skip
    assert "pool" not in loaded(tmp_path / "before.safetensors", num_classes=3)[1].assumed


@pytest.mark.parametrize("own", [{}, {"pool": "mean"}, {"num_registers": 3}], ids=str)
def test_one_head_behind_two_tokens(own, tmp_path):
    """DeiT, fine-tuned with one head: its distillation token is a register."""
    from transformers import DeiTConfig, DeiTForImageClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    source = randomized(DeiTForImageClassification(DeiTConfig(**sizes, image_size=32, patch_size=4, num_labels=7)))
    source.save_pretrained(tmp_path)
    end, options = follow(tmp_path, source, norm_eps=1e-12, **own)
    assert (end, options["num_registers"]) == ("equal", 1)
    with pytest.raises(CheckpointError, match=r"it has no head_dist.bias; .* choose a plain ViT with model.num_regis"):
        loaded(tmp_path, norm_eps=1e-12, kind=DistilledVisionTransformer)
    twice = randomized(DistilledVisionTransformer(**vit_options(in_chans=3, num_classes=7)))
    save_file(twice.state_dict(), tmp_path / "two.safetensors")
    with pytest.raises(CheckpointError, match=r"the model has no head_dist.bias; .* as model=deit_b16_distilled, or"):
        loaded(tmp_path / "two.safetensors", num_registers=1)


@pytest.mark.parametrize("own", [{"pool": "map"}, {"pool": "mean"}, {"pool": "cls", "class_token": True}], ids=str)
def test_siglip_classifies_the_mean(own, tmp_path):
    from transformers import SiglipConfig, SiglipForImageClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    config = SiglipConfig(vision_config=sizes | {"image_size": 32, "patch_size": 4}, text_config=sizes, num_labels=7)
    source = randomized(SiglipForImageClassification(config))
    source.save_pretrained(tmp_path)
    same = {"mlp": "gelu_tanh", "class_token": False} | own
    for name in ("", "model.safetensors"):
        end, options = follow(tmp_path / name, source, **same)
        assert (end, options["pool"], options["fc_norm"]) == ("equal", "mean", False)
    (tmp_path / "config.json").rename(tmp_path / "other.json")  # the names of tensors say as much
    assert follow(tmp_path / "model.safetensors", source, **same)[0] == "equal"


def test_a_class_that_nobody_has_read_may_read_anything(tmp_path):
    huggingface_vit(layer_norm_eps=1e-6).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["ViTForMyself"]}))
    with pytest.raises(CheckpointError, match="it reads what ViTForMyself makes of the tokens, and the model's"):
        loaded(tmp_path)
    assert loaded(tmp_path, num_classes=3)[1].counts()["initialised anew"] == 2


# -- new heads


def test_a_new_head_is_asked_for_by_one_key(tmp_path):
    source = timm_vit(global_pool="avg", fc_norm=False)
    write_timm(tmp_path, source, {"global_pool": "avg", "fc_norm": False})
    for options in ({}, {"pool": "mean"}, {"pool": "mean", "fc_norm": False}, {"representation_dim": 24}):
        model, report = loaded(tmp_path, head=False, head_std=0.0, **options)
        assert model.head.weight.abs().max() == 0
        notes = {entry.tensor: entry.note for entry in report.entries if entry.status == "initialised anew"}
        assert notes["head.weight"] == "a new one is asked for"
    with pytest.raises(CheckpointError, match="num_heads 2"):  # the rest is checked as ever
        loaded(tmp_path, head=False, num_heads=4)
    resnet = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    save_file({name: torch.ones_like(value) for name, value in resnet.state_dict().items()}, tmp_path / "a.safetensors")
    load(resnet, str(tmp_path / "a.safetensors"), head=False)
    assert resnet[0].weight.sum() == 4
    assert resnet[1].weight.sum() != 4


@pytest.mark.parametrize("options", [{"depth": 3}, {"depth": 1}, {"num_heads": 4}, {"layer_scale": 1.0}], ids=str)
def test_a_head_behind_another_encoder_is_not_taken(options, tmp_path):
    """With pretrained_partial, which takes what fits; a head that read other features is no use."""
    write_timm(tmp_path, timm_vit(), {})
    _, report = loaded(tmp_path, partial=True, **options)
    entry = next(entry for entry in report.entries if entry.tensor == "head.weight")
    assert entry.status == "initialised anew"
    assert report.counts()["copied"] > 10


# -- models of timm


def test_a_model_of_timm_takes_weights_of_its_name(tmp_path, monkeypatch):
    """The tensors of two architectures can have the same names and shapes."""
    source = randomized(timm.create_model("test_vit", num_classes=7))
    config = {"architecture": "test_vit", "model_args": {"img_size": 160, "num_classes": 7, "global_pool": "token"}}
    save_file(source.state_dict(), tmp_path / "model.safetensors")

    def check(name, **changes):
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        model = timm.create_model(name, num_classes=7)
        load(model, str(tmp_path))
        assert torch.equal(model.head.weight, source.head.weight)

    check("test_vit")
    for changes, words in (
        (
            {"architecture": "vit_tiny_patch16_224"},
            "name vit_tiny_patch16_224, but .* set model.name=vit_tiny_patch16_224",
        ),
        (
            {"model_args": {"act_layer": "quick_gelu"}},
            "model_args {'act_layer': 'quick_gelu'}, but .*; take other weig",
        ),
        ({"model_args": {"global_pool": "avg"}}, "model_args {'global_pool': 'avg'}"),
    ):
        with pytest.raises(CheckpointError, match=words):
            check("test_vit", **changes)
    run = write_run(tmp_path / "best.ckpt", source, "timm_model", name="test_vit")
    load(timm.create_model("test_vit", num_classes=7), str(run))
    run = write_run(tmp_path / "best.ckpt", source, "timm_model", name="vit_tiny_patch16_224")
    with pytest.raises(CheckpointError, match=r"set model\.name=vit_tiny_patch16_224"):
        load(timm.create_model("test_vit", num_classes=7), str(run))
    resnet = timm.create_model("resnet18")
    save_file(resnet.state_dict(), tmp_path / "resnet.safetensors")
    monkeypatch.setattr("vitlab.weights.by_timm.find_file", lambda config: tmp_path / "resnet.safetensors")
    model = timm.create_model("resnet18")
    assert load(model, "timm:resnet18").counts()["copied"] == len(resnet.state_dict())
    assert torch.equal(model.fc.weight, resnet.fc.weight)


def test_a_run_of_timms_model_says_what_it_computes(tmp_path):
    """Rotary positions have no tensors, and the activation none either."""
    source = randomized(timm.create_model("test_vit", num_classes=7))
    sizes = {"image_size": 160, "patch_size": 16, "embed_dim": 64, "depth": 6, "num_heads": 2, "mlp_ratio": 3.0}
    run = write_run(tmp_path / "best.ckpt", source, "timm_model", name="test_vit")
    assert relative(loaded(run, **sizes)[0], source, size=160) < 1e-4
    with pytest.raises(CheckpointError, match=r"computes with mlp gelu and position learned_1d, but .* silu"):
        loaded(run, **sizes, mlp="silu", position="rotary")
