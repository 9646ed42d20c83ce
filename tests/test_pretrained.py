"""model.pretrained=... and export, through the entries, as a user meets them."""

import pytest
import torch
from conftest import BARE, refuses

import vitlab
from vitlab.checkpoints import file

QUICK = [*BARE, "trainer.max_steps=1", "global_batch_size=64"]
STILL = [*QUICK, "optimizer.lr=1e-12", "optimizer.weight_decay=0"]  # weights stay


def weights_of(run, name="best"):
    return file.read(run / "checkpoints" / f"{name}.ckpt")["state_dict"]


def test_a_run_starts_from_another(cli, digits_run):
    run = cli("train", *STILL, f"model.pretrained={digits_run}", folder="run")
    assert run.status == 0, run.err
    before = weights_of(digits_run)
    for name, value in weights_of(run.folder).items():
        torch.testing.assert_close(value, before[name], atol=1e-6, rtol=0)
    assert f"{len(before)} copied" in run.out
    lines = (run.folder / "pretrained.csv").read_text().splitlines()
    assert lines[0] == "tensor,status,source_shape,model_shape,note"
    assert len(lines) == 1 + len(before)


def test_a_run_at_another_size_resizes_positions(cli, digits_run):
    run = cli("train", *STILL, f"model.pretrained={digits_run}", "data.image_size=16", folder="run")
    assert run.status == 0, run.err
    assert "1 resized" in run.out
    assert "grid 8x8 -> 4x4" in run.out
    assert weights_of(run.folder)["model.pos_embed"].shape == (1, 17, 32)


def test_weights_of_another_model_end_with_status_4_before_the_first_step(cli, digits_run):
    run = cli("train", *QUICK, f"model.pretrained={digits_run}", "model.depth=3", folder="run")
    assert run.status == 4
    assert "blocks.2.norm1.weight" in run.err
    assert refuses(run, "model.pretrained_partial=true"), run.err
    partial = ["model.depth=3", "model.pretrained_partial=true"]
    assert cli("train", *QUICK, f"model.pretrained={digits_run}", *partial, folder="partial").status == 0
    eps = cli("train", *QUICK, f"model.pretrained={digits_run}", "model.norm_eps=1e-5", folder="eps")
    assert eps.status == 4
    assert "model.norm_eps=1e-06" in eps.err
    rotary = ["model.position=rotary", "model.pretrained=nowhere.pth"]
    assert "nowhere.pth" in cli("train", *QUICK, *rotary, folder="none").err


def test_a_head_that_would_read_something_else_ends_with_status_4(cli, digits_run, capfd):
    """train.py and create_model say the same of it."""
    pool = ["model.pool=mean", f"model.pretrained={digits_run}"]
    run = cli("train", *QUICK, *pool, folder="run")
    assert run.status == 4
    sentence = "it reads the class token, and the model's the mean of the patches; set model.pool=cls, or "
    assert refuses(run, f"{sentence}model.pretrained_head=false for a new head"), run.err
    run = cli("train", *QUICK, *pool, "model.pretrained_head=false", folder="run")
    assert run.status == 0, run.err
    told = heads_in(run.out)
    assert [line[0] for line in told] == ["fc_norm.weight", "head.weight"]
    options = {"image_size": 32, "in_chans": 1, "num_classes": 10, "pool": "mean", "pretrained": digits_run}
    with pytest.raises(vitlab.VitlabError, match=f"{sentence}model.pretrained_head=false"):
        vitlab.create_model("vit_mu4", **options)
    capfd.readouterr()
    vitlab.create_model("vit_mu4", **options, pretrained_head=False)
    assert heads_in(capfd.readouterr().out) == told


def heads_in(printed):
    """The words of the lines on weights that start anew."""
    lines = [line.split() for line in printed.splitlines() if "initialised anew" in line]
    return [words for words in lines if words[0].endswith(".weight")]


@pytest.mark.slow
def test_what_was_exported_is_a_source(cli, digits_run):
    for form in ("timm", "huggingface"):
        assert cli("export", f"run={digits_run}", f"format={form}", f"output={form}").status == 0
        run = cli("train", *STILL, f"model.pretrained={form}", folder=f"from_{form}")
        assert run.status == 0, run.err
        assert "initialised anew" not in run.out
