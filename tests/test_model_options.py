"""Options that cut across: torch.compile, EMA, patches for a model at another size, logging to W&B."""

import subprocess
import sys
import zipfile

import pytest
import torch
from conftest import BARE

from vitlab.checkpoints import file

QUICK = [*BARE, "trainer.max_steps=2", "global_batch_size=64"]


def test_checkpoints_of_a_compiled_model_load_everywhere(cli, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, *a, **k: compiled.append(type(self).__name__))
    run = cli("train", *QUICK, "compile=true", folder="run")
    assert run.status == 0, run.err
    assert compiled == ["VisionTransformer"]


@pytest.mark.slow
def test_activation_checkpointing_changes_no_weight(cli):
    """With dropout, drop path and an average of the weights."""
    drawn = [*QUICK, "model.drop_rate=0.1", "model.drop_path_rate=0.2", "callbacks=[default,ema]"]
    drawn.append("callbacks.ema.decay=0.5")
    runs = [cli("train", *drawn, f"activation_checkpointing={on}", folder=f"run_{on}") for on in ("true", "false")]
    assert [run.status for run in runs] == [0, 0], runs[0].err
    weights = [file.read(run.folder / "checkpoints" / "best.ckpt")["state_dict"] for run in runs]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["model=resnet18", "activation_checkpointing=true"], "activation_checkpointing: ResNet has no list"),
        (["callbacks=[default,ema,swa]"], "callbacks.ema and callbacks.swa"),
        (["callbacks=[default,swa]", "callbacks.swa.start_ratio=0"], "callbacks.swa.every_n_steps 100 is longer"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_the_run(cli, options, words):
    run = cli("train", *QUICK, *options, folder="run")
    assert run.status == 2
    assert words in run.err
    assert not (run.folder / "config.yaml").exists()


@pytest.mark.slow
def test_torch_compile_leaves_no_trace_in_the_checkpoint(cli):
    options = [*QUICK, "trainer.precision=32-true", "optimizer=sgd"]  # AdamW would make much of a gradient's last bit
    compiled = cli("train", *options, "compile=true", folder="compiled")
    plain = cli("train", *options, folder="plain")
    assert (compiled.status, plain.status) == (0, 0), compiled.err
    weights = [file.read(run.folder / "checkpoints" / "best.ckpt")["state_dict"] for run in (compiled, plain)]
    assert weights[0].keys() == weights[1].keys()
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], atol=1e-5, rtol=1e-4)
    assert cli("evaluate", "run=compiled").status == 0


@pytest.mark.slow
def test_the_digits_run_at_the_size_and_patches_of_vit_b16(cli):
    shape = ["model=vit_b16", "model.depth=1", "model.embed_dim=24"]
    assert cli("train", *QUICK, *shape, folder="small").status == 0
    weights = file.read(cli("train", *QUICK, *shape, folder="small2").folder / "checkpoints" / "best.ckpt")
    assert weights["state_dict"]["model.pos_embed"].shape == (1, 1 + 4, 24)  # 32 px in 4 patches of 16
    large = cli("train", *QUICK, *shape, "data.image_size=224", "global_batch_size=8", folder="large")
    assert large.status == 0, large.err


@pytest.mark.ci
@pytest.mark.slow
def test_an_offline_wandb_run_holds_metrics_pictures_and_config(cli, tmp_path):
    run = cli(
        "train", "logger=wandb", "trainer.max_epochs=1", "trainer.log_every_n_steps=5", folder="run", pictures=True
    )
    assert run.status == 0, run.err
    (record,) = run.folder.glob("wandb/offline-run-*/run-*.wandb")
    leet = subprocess.run(
        [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(record)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert leet.returncode == 0, leet.stderr
    text = leet.stdout
    for name in ("train/loss", "train/lr", "train/grad_norm", "train/images_per_second", "train/peak_memory_mib"):
        assert name in text
    for name in ("val/acc1", "test/acc1", "test/ece", "training_batch", "test_confusion_matrix", "worst_predictions"):
        assert name in text
    for name in ("attention_1", "attention_rollout", "attention_distance", "position_similarity", "embedding_filters"):
        assert name in text
    assert file.read(run.folder / "checkpoints" / "best.ckpt")["run"]["identity"]["id"] in record.name
    elsewhere = {path.name for path in tmp_path.iterdir()}
    assert elsewhere == {"run"}  # nothing of W&B's lies outside the run's folder


@pytest.mark.slow
def test_the_wheel_carries_the_configs(tmp_path):
    from vitlab.config.home import CHECKOUT

    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"vitlab/conf/train.yaml", "vitlab/conf/model/vit_b16.yaml"} <= set(names)
    assert any(name.startswith("vitlab/experiments/recipe/") for name in names)
    assert any(name.startswith("hydra_plugins/") for name in names)
    target = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(target)
    code = "from vitlab.config.home import CONF; print(CONF); assert (CONF / 'train.yaml').is_file()\n"
    code += "from vitlab.config.in_process import compose\n"
    code += "print(compose('train', ['recipe=digits', 'optimizer=lion']).optimizer)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(target)},
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    assert str(target) in found
    assert "'lr': 0.0001" in found  # not the recipe's
