"""python src/summary.py, as a user runs it."""

import pytest


def test_the_default_is_b16_on_imagenet_and_its_tables_say_what_it_costs(cli):
    run = cli("summary")
    assert run.status == 0, run.err
    for figure in ("86,567,656", "16.849", "0.715", "17.564 GMACs", "50,176", "784", "estimate"):
        assert figure in run.out
    row = next(line for line in run.out.splitlines() if "blocks.0-11.attn.qkv.weight" in line)
    assert [cell.strip() for cell in row.split("│")[2:6]] == ["2304x768", "21,233,664", "0.05", "1"]


def test_layers_learn_at_their_own_rates(cli):
    run = cli("summary", "model=vit_mu4", "data=digits", "optimizer.layer_decay=0.5")
    rates = {line.split("│")[1].strip(): line.split("│")[5].strip() for line in run.out.splitlines() if "│" in line[:1]}
    assert rates["pos_embed"] == "0.125"
    assert rates["blocks.0.attn.qkv.weight"] == "0.25"
    assert rates["blocks.1.attn.qkv.weight"] == "0.5"
    assert rates["head.weight"] == "1"


def test_what_is_frozen_is_listed_too(cli):
    run = cli("summary", "model=vit_ti16", "optimizer.trained=head")
    assert run.status == 0, run.err
    rows = {line.split("│")[1].strip(): line for line in run.out.splitlines() if line.startswith("│")}
    assert "frozen" in rows["blocks.0-11.attn.qkv.weight"]
    assert "frozen" in rows["cls_token"]
    assert "frozen" not in rows["head.weight"]


@pytest.mark.slow
def test_less_is_kept_when_blocks_are_computed_again(cli):
    def per_image(*overrides):
        out = cli("summary", "tensors=false", *overrides).out
        return float(next(line for line in out.splitlines() if "per image" in line).split()[2])

    assert per_image("activation_checkpointing=true") < per_image() / 4


@pytest.mark.slow
def test_other_architectures_and_refusals(cli):
    assert "1.814 GMACs" in cli("summary", "model=resnet18", "tensors=false").out
    for overrides, word in (
        (["precision=fp8"], "precision 'fp8' is not one of: 32-true, bf16-mixed"),
        (["memory_gib=-1"], "memory_gib -1"),
        (["model=resnet18", "optimizer.layer_decay=0.5"], "layer_decay"),
        (["model=resnet18", "activation_checkpointing=true"], "activation_checkpointing: ResNet has no list"),
        (["model.patch_size=15"], "image_size 224 is not a multiple of patch_size 15"),
    ):
        run = cli("summary", *overrides)
        assert run.status == 2
        assert word in run.err
        assert "Traceback" not in run.err
