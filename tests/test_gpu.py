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
