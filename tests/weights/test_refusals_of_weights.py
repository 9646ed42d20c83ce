"""What is no source, or of another model: one sentence, and the model as it was."""

import csv
import json
import pickle

import pytest
import torch
from foreign import distance, huggingface_vit, images, loaded, ours, randomized, timm_vit, write_npz
from safetensors.torch import save_file

from vitlab.errors import CheckpointError
from vitlab.weights import load
from vitlab.weights.facts import facts


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vit.safetensors"
    save_file(timm_vit().state_dict(), path)
    return path


def refused(source, *words, **changes):
    """The model refuses the source in one line with these words, and is as it was."""
    model = ours(**changes)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        load(model, str(source), partial=False)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# -- files


def test_files_that_cannot_be_read(tmp_path, file):
    refused(tmp_path / "nothing.pth", "nothing.pth", "timm:NAME")
    torch.save(timm_vit().state_dict(), tmp_path / "whole.pth")
    whole = (tmp_path / "whole.pth").read_bytes()
    (tmp_path / "short.pth").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "short.safetensors").write_bytes(file.read_bytes()[:5000])
    (tmp_path / "noise.npz").write_bytes(b"no archive")
    (tmp_path / "text.bin").write_text("hello")
    (tmp_path / "empty.pt").write_bytes(b"")
    for name in ("short.pth", "short.safetensors", "noise.npz", "text.bin", "empty.pt"):
        refused(tmp_path / name, name, "damaged")
    (tmp_path / "weights.txt").write_text("hello")
    refused(tmp_path / "weights.txt", ".safetensors")


def test_a_flipped_bit_in_a_torch_file(tmp_path):
    torch.save(timm_vit().state_dict(), tmp_path / "vit.pth")
    content = bytearray((tmp_path / "vit.pth").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "vit.pth").write_bytes(content)
    refused(tmp_path / "vit.pth", "damaged", "checksum")


class Code:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_pickled_code_is_not_executed(tmp_path, capfd):
    torch.save({"model": Code()}, tmp_path / "code.pth")
    (tmp_path / "plain.bin").write_bytes(pickle.dumps(Code()))
    refused(tmp_path / "code.pth", "code.pth")
    refused(tmp_path / "plain.bin", "plain.bin")
    assert "executed" not in capfd.readouterr().out


def test_files_without_a_vit(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "none.pth")
    refused(tmp_path / "none.pth", "no tensors")
    save_file(torch.nn.Linear(2, 2).state_dict(), tmp_path / "linear.safetensors")
    refused(tmp_path / "linear.safetensors", "no Vision Transformer")
    state = timm_vit().state_dict()
    state["norm.weight"][3] = torch.nan
    save_file(state, tmp_path / "nan.safetensors")
    refused(tmp_path / "nan.safetensors", "norm.weight", "NaN")


def test_folders_that_are_damaged(tmp_path):
    refused(tmp_path, "checkpoints")
    (tmp_path / "config.json").write_text("{")
    refused(tmp_path, "config.json", "model.safetensors")
    save_file(timm_vit().state_dict(), tmp_path / "model.safetensors")
    refused(tmp_path, "config.json is damaged")


# -- other models


def test_tensors_that_do_not_fit_are_named_and_counted(file, tmp_path):
    refused(file, "cls_token", "32", "48", "model.pretrained_partial=true", embed_dim=48)
    refused(file, "blocks.2.norm1.weight", "11 more", depth=3)
    refused(file, "the model has no blocks.1.", "11 more", depth=1)
    refused(file, "blocks.0.ls1.gamma", layer_scale=1e-5)
    refused(file, "attn_pool.latent", pool="map")
    refused(file, "reg_token", num_registers=2)
    refused(file, "pos_embed", position="rotary")


def test_partial_takes_what_fits(file):
    model, report = loaded(file, partial=True, depth=3, layer_scale=1e-5)
    entries = {entry.tensor: entry for entry in report.entries}
    assert entries["blocks.2.norm1.weight"].status == "initialised anew"
    assert entries["blocks.1.norm1.weight"].status == "copied"
    torch.testing.assert_close(model.blocks[1].mlp.fc1.weight, timm_vit().blocks[1].mlp.fc1.weight)
    save_file({"blocks.0.norm1.weight": torch.zeros(5), "patch_embed.proj.bias": torch.zeros(4)}, file)
    with pytest.raises(CheckpointError, match="no tensor that fits"):
        loaded(file, partial=True)


def test_what_no_tensor_shows_must_agree(tmp_path):
    huggingface_vit().save_pretrained(tmp_path / "hf")
    refused(tmp_path / "hf", "norm_eps 1e-12", "model.norm_eps=1e-12")
    refused(tmp_path / "hf", "num_heads 2", "model.num_heads=2", norm_eps=1e-12, num_heads=4)
    refused(tmp_path / "hf", "mlp gelu", norm_eps=1e-12, mlp="gelu_tanh")
    assert loaded(tmp_path / "hf", norm_eps=1e-12)[1].counts()["copied"] == len(ours().state_dict())
    assert loaded(tmp_path / "hf", partial=True)[1].counts()["copied"] == len(ours().state_dict()) - 2  # the head's
    huggingface_vit(hidden_act="leaky_relu").save_pretrained(tmp_path / "leaky_relu")
    refused(tmp_path / "leaky_relu", "mlp leaky_relu", "gelu_tanh", norm_eps=1e-12)
    write_npz(tmp_path / "vit.npz", timm_vit(num_heads=4).state_dict(), 4)
    refused(tmp_path / "vit.npz", "num_heads 4", "model.num_heads=4")


def test_a_folder_of_timm_says_what_its_architecture_is(tmp_path):
    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 4}
    config = {"architecture": "vit_base_patch16_224", "num_classes": 7, "model_args": sizes}
    source = timm_vit(**sizes)
    save_file(source.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(tmp_path, "model.num_heads=4")
    assert distance(loaded(tmp_path, num_heads=4)[0], source, images()) < 1e-4
    (tmp_path / "config.json").write_text(json.dumps({**config, "architecture": "vit_of_nobody"}))
    refused(tmp_path, "timm cannot build")


# -- heads


@pytest.mark.parametrize("wanted", [{"num_classes": 5}, {"representation_dim": 24}, {"representation_dim": 32}])
def test_another_head_starts_anew_as_the_model_says(file, wanted):
    model, report = loaded(file, head="num_classes" in wanted, head_std=0.0, head_bias=-3.0, **wanted)
    assert model.head.weight.abs().max() == 0
    assert torch.equal(model.head.bias, torch.full_like(model.head.bias, -3.0))
    anew = {entry.tensor for entry in report.entries if entry.status == "initialised anew"}
    assert {"head.weight", "head.bias"} <= anew


def test_a_head_after_a_layer_that_the_model_lacks_is_not_taken(tmp_path):
    """Of the same shape, it would read other features."""
    save_file(ours(representation_dim=32).state_dict(), tmp_path / "pre.safetensors")
    refused(tmp_path / "pre.safetensors", "it follows a tanh layer of width 32", "set model.representation_dim=32, or")
    _, report = loaded(tmp_path / "pre.safetensors", head=False)
    assert {e.tensor for e in report.entries if e.status == "initialised anew"} == {"head.weight", "head.bias"}
    assert report.counts()["left over"] == 2  # pre_logits


@pytest.mark.parametrize("shape", [(), (7,), (7, 32, 1)])
@pytest.mark.parametrize("name", ["head.weight", "pre_logits.fc.weight", "cls_token", "reg_token", "fc_norm.weight"])
def test_tensors_of_other_shapes_are_refused(name, shape, tmp_path):
    save_file(timm_vit().state_dict() | {name: torch.zeros(shape)}, tmp_path / "odd.safetensors")
    if name == "head.weight" and not shape:  # for no class at all
        assert loaded(tmp_path / "odd.safetensors")[1].counts()["initialised anew"] == 2
    else:
        refused(tmp_path / "odd.safetensors", "odd.safetensors")


# -- the report


def test_the_report_names_every_tensor(file, tmp_path, capsys):
    model, report = loaded(file, image_size=48, num_classes=5)
    report.save(tmp_path / "pretrained.csv")
    with open(tmp_path / "pretrained.csv", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert {row["tensor"] for row in rows if row["model_shape"]} == set(model.state_dict())
    assert next(row for row in rows if row["tensor"] == "pos_embed") == {
        "tensor": "pos_embed",
        "status": "resized",
        "source_shape": "1x65x32",
        "model_shape": "1x145x32",
        "note": "grid 8x8 -> 12x12",
    }
    assert ("num_heads", "assumed") in {(row["tensor"], row["status"]) for row in rows}  # a bare file states no heads
    report.show()
    out = capsys.readouterr().out
    assert "not stated by the source, assumed from the model: num_heads 2" in out
    assert "1 resized, 2 initialised anew" in out
    assert "grid 8x8 -> 12x12" in out
    assert "blocks" not in out


# -- other architectures


def test_models_of_other_libraries_take_their_own_names(tmp_path):
    import torchvision

    source = randomized(torchvision.models.resnet18(num_classes=7))
    torch.save({"state_dict": source.state_dict()}, tmp_path / "resnet.pth")
    same, other = (torchvision.models.resnet18(num_classes=n).eval() for n in (7, 3))
    load(same, str(tmp_path / "resnet.pth"), partial=False)
    assert distance(same, source, images(64)) == 0
    report = load(other, str(tmp_path / "resnet.pth"), partial=False)
    assert [e.tensor for e in report.entries if e.status == "initialised anew"] == ["fc.weight", "fc.bias"]
    with pytest.raises(CheckpointError, match=r"layer1.2.conv1.weight .* 95 more"):
        load(torchvision.models.resnet34(num_classes=7), str(tmp_path / "resnet.pth"), partial=False)


# -- what shapes alone would let through


def test_a_file_is_read_with_the_config_beside_it(tmp_path):
    huggingface_vit(num_attention_heads=4).save_pretrained(tmp_path)
    refused(tmp_path / "model.safetensors", "num_heads 4", norm_eps=1e-12)


def test_a_head_for_another_pooling_is_refused(tmp_path):
    """All shapes agree, and the features do not."""
    save_file(timm_vit(global_pool="avg", fc_norm=False).state_dict(), tmp_path / "model.safetensors")
    arguments = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "fc_norm": False}
    config = {"architecture": "vit_base_patch16_224", "num_classes": 7, "global_pool": "avg"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_args": arguments | {"global_pool": "avg"}}))
    refused(tmp_path, "the mean of the patches, and the model's the class token", "set model.pool=mean model.fc_norm=f")
    refused(tmp_path, "its last norm is before the pooling", "set model.fc_norm=false, or", pool="mean")
    _, report = loaded(tmp_path, pool="mean", fc_norm=False)
    assert report.counts()["initialised anew"] == 0


def test_tables_of_their_own_do_not_go_into_a_shared_one(tmp_path):
    save_file(ours(position_place="every_layer").state_dict(), tmp_path / "own.safetensors")
    with pytest.raises(CheckpointError, match="one tensor in the model, and two in it"):
        loaded(tmp_path / "own.safetensors", position_place="every_layer_shared")


def test_a_learned_table_in_place_of_a_fixed_one_is_said(file):
    _, report = loaded(file, position="sincos_2d")
    entry = next(entry for entry in report.entries if entry.tensor == "pos_embed")
    assert (entry.status, entry.note) == ("copied", "in place of the model's fixed one")


def test_averaged_weights_come_before_the_raw_ones(tmp_path):
    raw, averaged = timm_vit(), randomized(timm_vit(), seed=9)
    torch.save({"state_dict": raw.state_dict(), "state_dict_ema": averaged.state_dict()}, tmp_path / "both.pth")
    assert distance(loaded(tmp_path / "both.pth")[0], averaged, images()) < 1e-4


def test_looking_at_a_model_draws_no_random_numbers():
    """A head that starts anew is the same, whatever was compared before."""
    model = ours(mlp="quick_gelu")
    before = torch.get_rng_state()
    assert facts(model)["mlp"] == "quick_gelu"
    assert torch.equal(torch.get_rng_state(), before)
