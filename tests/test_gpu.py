"""What only a GPU can show: python -m pytest -m gpu."""

import json
from pathlib import Path

import pytest
import torch
from conftest import BARE

from vitlab.checkpoints import file

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

WAVES = [
    *BARE,
    "model=vit_mu4",
    "trainer=gpu",
    "logger=none",
    "data=synthetic",
    "data.num_classes=4",
    "optimizer.lr=3e-3",
]


def test_a_run_learns_in_the_precision_of_the_hardware(cli):
    run = cli("train", *WAVES, "trainer.max_epochs=12", "mixing=mixup", folder="run", tiny=False)
    assert run.status == 0, run.err
    assert json.loads((run.folder / "result.json").read_text())["test"]["test/acc1"] > 0.9


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
@pytest.mark.parametrize("fused", ["true", "false"])
def test_gradients_are_clipped_in_every_precision(cli, precision, fused):
    """SGD without momentum: the weights move as far as the clipped gradient, times the learning rate."""
    options = [*WAVES, f"trainer.precision={precision}", "trainer.gradient_clip_val=1e-3", "optimizer=sgd"]
    options += ["optimizer.algorithm.momentum=0", f"++optimizer.algorithm.fused={fused}", "optimizer.weight_decay=0"]
    options += ["optimizer.lr=1.0", "schedule=constant", "schedule.warmup_ratio=0"]
    assert cli("train", *options, "trainer.max_steps=20", folder="run", tiny=False).status == 0
    before = file.read(Path("run/checkpoints/latest.ckpt"))["state_dict"]
    assert cli("train", "resume=run", "trainer.max_steps=21", tiny=False).status == 0
    after = file.read(Path("run/checkpoints/latest.ckpt"))["state_dict"]
    moved = [(after[name] - value).square().sum() for name, value in before.items() if name.startswith("model.")]
    assert sum(moved).sqrt() == pytest.approx(1e-3, rel=1e-2)


def test_training_waits_for_the_device_only_when_it_logs(cli, monkeypatch):
    """CUDA's own check raises at every hidden synchronization within a training step."""
    from vitlab.tasks import Classification

    step = Classification.training_step

    def watched(self, batch, batch_idx):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step(self, batch, batch_idx)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Classification, "training_step", watched)
    run = cli("train", *WAVES, "trainer.max_steps=20", folder="run", tiny=False)
    assert run.status == 0, run.err


def test_a_run_of_a_gpu_goes_on_with_a_cpu(cli):
    assert cli("train", *WAVES, "trainer.max_epochs=1", folder="run", tiny=False).status == 0
    run = cli("train", "resume=run", "trainer=cpu", "trainer.max_epochs=2", tiny=False)
    assert run.status == 0, run.err
    state = file.read(Path("run/checkpoints/latest.ckpt"))
    assert state["epoch"] == 1


def loaded(device, num_workers=2):
    """The training batches of an epoch as they come from a loader, and finished."""
    import numpy as np
    import pytorch_lightning as pl
    from hydra import compose, initialize_config_dir

    from vitlab.home import CONF
    from vitlab.run.build import build

    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("train", overrides=["model=vit_mu4", "data=digits", f"data.num_workers={num_workers}"])
    module = build(cfg.data, "data")
    module.trainer = pl.Trainer(accelerator=device, devices=1, logger=False, enable_checkpointing=False)
    module.setup()
    batches = []
    for batch in module.train_dataloader():
        finished = module.on_after_batch_transfer(batch, 0)
        batches.append((batch.inputs.cpu().clone(), finished.inputs.cpu(), batch.index.cpu()))
    assert np.unique(torch.cat([index for _, _, index in batches])).size == sum(len(index) for _, _, index in batches)
    return batches


def test_batches_that_are_copied_ahead_are_those_of_the_workers():
    for ours, theirs in zip(loaded("gpu"), loaded("cpu", num_workers=0), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[2], theirs[2])
        torch.testing.assert_close(ours[1], theirs[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [["data.cache=device"], ["crop=native", "crop.train.max_tokens=40"]], ids=str)
def test_training_from_the_device_and_on_mixed_sizes(cli, options):
    run = cli("train", *WAVES, *options, "trainer.max_epochs=2", "data.cache_root=cache", folder="run", tiny=False)
    assert run.status == 0, run.err
