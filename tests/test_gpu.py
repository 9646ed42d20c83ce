"""What only a GPU can show: python -m pytest -m gpu. With GPU_TESTS_ON=cpu a CPU runs what it can of them, so that no
typing error waits for a GPU."""

import functools
import json
import os
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read once, at the first product

import pytest
import torch
from conftest import BARE
from pytorch_lightning.plugins import MixedPrecision
from pytorch_lightning.trainer.connectors.accelerator_connector import _AcceleratorConnector

from vitlab.checkpoints import file
from vitlab.tasks import Classification, Task

DEVICE = os.environ.get("GPU_TESTS_ON", "cuda")
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = [pytest.mark.gpu, *([on_a_gpu] if DEVICE == "cuda" else [])]

WAVES = [
    *BARE,
    "model=vit_mu4",
    *{
        "cuda": ["trainer=gpu", "data.loading.num_workers=2"],
        "cpu": ["trainer=cpu", "data.loading.num_workers=0", "data.source.num_samples=200"],
    }[DEVICE],
    "logger=none",
    "data=synthetic",
    "data.num_classes=4",
    "optimizer.lr=3e-3",
]
LATEST = Path("run/checkpoints/latest.ckpt")


@on_a_gpu
def test_a_run_learns_in_the_precision_of_the_hardware(cli):
    run = cli("train", *WAVES, "trainer.max_epochs=12", "mixing=mixup", folder="run", tiny=False)
    assert run.status == 0, run.err
    assert json.loads((run.folder / "result.json").read_text())["test"]["test/acc1"] > 0.9


@pytest.mark.parametrize("precision", [pytest.param("16-mixed", marks=on_a_gpu), "bf16-mixed"])
@pytest.mark.parametrize("fused", ["true", "false"])
def test_gradients_are_clipped_in_every_precision(cli, precision, fused):
    """SGD without momentum: the weights move as far as the clipped gradient, times the learning rate."""
    options = [*WAVES, f"trainer.precision={precision}", "trainer.gradient_clip_val=1e-3", "optimizer=sgd"]
    options += ["optimizer.algorithm.momentum=0", f"++optimizer.algorithm.fused={fused}", "optimizer.weight_decay=0"]
    options += ["optimizer.lr=1.0", "schedule=constant", "schedule.warmup_ratio=0"]
    assert cli("train", *options, "trainer.max_steps=20", folder="run", tiny=False).status == 0
    before = file.read(LATEST)["state_dict"]
    assert cli("train", "resume=run", "trainer.max_steps=21", tiny=False).status == 0
    after = file.read(LATEST)["state_dict"]
    moved = [(after[name] - value).square().sum() for name, value in before.items() if name.startswith("model.")]
    assert sum(moved).sqrt() == pytest.approx(1e-3, rel=1e-2)


# -- nothing waits for the host


def refuse_waiting(refuse):
    """CUDA's own check, which raises wherever the host waits for the device."""
    if DEVICE == "cuda":
        torch.cuda.set_sync_debug_mode("error" if refuse else "default")


SCALED = ["trainer.precision=16-mixed", "data.device_batch_size=4"]
NATIVE = ["crop=native", "crop.train.max_tokens=40"]
MASKED = ["task=masked_autoencoding", "model=mae_xs4", "model.encoder.depth=1", "model.decoder_depth=1"]


@pytest.mark.parametrize(
    "options", [["mixing=mixup_cutmix"], SCALED, ["data.cache.kind=device"], NATIVE, MASKED], ids=str
)
def test_between_two_logs_nothing_waits_for_the_device(cli, monkeypatch, request, options):
    """Over whole steps: loader, copy, mixing, forward, backward, clipping, optimizer, average and all callbacks."""
    metrics, logged = Task.training_metrics, []

    def watched(self):
        refuse_waiting(False)
        values = metrics(self)
        logged.append(self.global_step)
        refuse_waiting(self.global_step < 15)
        return values

    request.addfinalizer(lambda: refuse_waiting(False))
    monkeypatch.setattr(Task, "training_metrics", watched)
    length = ["global_batch_size=8", "trainer.max_steps=15", "trainer.log_every_n_steps=5"]
    average = ["callbacks=[default,ema]", "callbacks.ema.decay=0.5"]
    run = cli("train", *WAVES, *average, *length, *options, folder="run", tiny=False)
    assert run.status == 0, run.err
    assert logged == [5, 10, 15]


@on_a_gpu
@pytest.mark.parametrize("kept", [True, False], ids=["as it is", "without record_stream"])
def test_the_memory_of_a_batch_is_not_used_anew_before_it_was_read(monkeypatch, kept):
    """The device is far behind the host, which has let go of the batches long before they are read."""
    if not kept:
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    sums = []
    for batch in training_batches("gpu"):
        torch.cuda._sleep(50_000_000)  # cycles: some 30 ms
        sums.append(batch.view.flatten(1).sum(dim=1))
        del batch
    expected = [batch.view.flatten(1).sum(dim=1) for batch in training_batches("cpu", num_workers=0)]
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(sums, expected, strict=True)) == kept


# -- compiled


def test_a_compiled_run_is_of_whole_graphs(cli, monkeypatch):
    from torch._dynamo.utils import counters

    if DEVICE == "cpu":  # C++ takes too long
        compiled = functools.partialmethod(torch.nn.Module.compile, backend="aot_eager")
        monkeypatch.setattr(torch.nn.Module, "compile", compiled)
    torch._dynamo.reset()
    counters.clear()
    options = ["compile=true", "model.depth=1", "callbacks=[default,ema]", "mixing=mixup", "trainer.max_epochs=2"]
    run = cli("train", *WAVES, *options, folder="run", tiny=False)
    assert run.status == 0, run.err
    assert sum(counters["graph_break"].values()) == 0
    assert 0 < counters["stats"]["unique_graphs"] <= 4


# -- resumed


class Killed(BaseException):
    """Stands for kill -9: nothing in the run may handle it."""


def test_killed_and_resumed_is_bit_exact_with_deterministic_algorithms(cli, monkeypatch):
    step, last = Classification.training_step, [10**6]

    def until(self, batch, batch_idx):
        if self.global_step >= last[0]:
            raise Killed
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Classification, "training_step", until)
    options = [*WAVES, "+trainer.deterministic=true", "callbacks=[default,ema]", "callbacks.ema.decay=0.8"]
    options += ["mixing=mixup_cutmix", "model.drop_rate=0.1", "model.drop_path_rate=0.1", "global_batch_size=16"]
    options += ["trainer.max_steps=16", "callbacks.latest_state.every_n_steps=3"]
    try:
        assert cli("train", *options, folder="whole", tiny=False).status == 0
        last[0] = 7
        with pytest.raises(Killed):
            cli("train", *options, folder="run", tiny=False)
        last[0] = 10**6
        assert file.read(LATEST)["global_step"] == 6
        assert cli("train", "resume=run", tiny=False).status == 0
    finally:
        torch.use_deterministic_algorithms(False)
    whole, resumed = file.read(Path("whole/checkpoints/latest.ckpt")), file.read(LATEST)
    assert (whole["global_step"], resumed["global_step"]) == (16, 16)
    for key in ("state_dict", "current_model_state"):
        for name, value in whole[key].items():
            assert torch.equal(value, resumed[key][name]), name


def float16_on_a_cpu(connector):
    return MixedPrecision("16-mixed", "cpu")


@pytest.mark.parametrize("fused", ["true", "false"])
def test_a_step_that_overflows_in_float16_changes_nothing_and_is_counted(cli, monkeypatch, fused):
    if DEVICE == "cpu":  # where Lightning takes bfloat16 for it
        monkeypatch.setattr(_AcceleratorConnector, "_check_and_init_precision", float16_on_a_cpu)
    options = [*WAVES, "trainer.precision=16-mixed", f"++optimizer.algorithm.fused={fused}", "schedule=constant"]
    assert cli("train", *options, "trainer.max_steps=10", folder="run", tiny=False).status == 0
    before = file.read(LATEST)
    step = Classification.training_step
    monkeypatch.setattr(Classification, "training_step", lambda self, *inputs: step(self, *inputs) * 1e38)
    assert cli("train", "resume=run", "trainer.max_steps=11", tiny=False).status == 0
    after = file.read(LATEST)
    assert after["global_step"] == before["global_step"] + 1 == 11
    assert after["MixedPrecision"]["scale"] == before["MixedPrecision"]["scale"] / 2
    for name, value in before["state_dict"].items():
        assert torch.equal(value, after["state_dict"][name]), name


def test_a_run_of_a_gpu_goes_on_with_a_cpu(cli):
    assert cli("train", *WAVES, "trainer.max_epochs=1", folder="run", tiny=False).status == 0
    run = cli("train", "resume=run", "trainer=cpu", "trainer.max_epochs=2", tiny=False)
    assert run.status == 0, run.err
    state = file.read(LATEST)
    assert state["epoch"] == 1


# -- batches


def data_of_a_run(device, num_workers=2):
    """Its datamodule, with a trainer on a device as Lightning names it."""
    import pytorch_lightning as pl
    from hydra import compose, initialize_config_dir

    from vitlab.config.build import build
    from vitlab.config.home import CONF

    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("train", overrides=["model=vit_mu4", "data=digits", f"data.loading.num_workers={num_workers}"])
    module = build(cfg.data, "data")
    module.trainer = pl.Trainer(accelerator=device, devices=1, logger=False, enable_checkpointing=False)
    module.setup()
    return module


def training_batches(device, num_workers=2):
    """As they come from a loader."""
    return data_of_a_run(device, num_workers).train_dataloader()


def loaded(device, num_workers=2):
    """The training batches of an epoch as they come from a loader, and finished."""
    import numpy as np

    module, batches = data_of_a_run(device, num_workers), []
    for batch in module.train_dataloader():
        finished = module.on_after_batch_transfer(batch, 0)
        batches.append((batch.view.cpu().clone(), finished.view.inputs.cpu(), batch.index.cpu()))
    assert np.unique(torch.cat([index for _, _, index in batches])).size == sum(len(index) for _, _, index in batches)
    return batches


@on_a_gpu
def test_batches_that_are_copied_ahead_are_those_of_the_workers():
    for ours, theirs in zip(loaded("gpu"), loaded("cpu", num_workers=0), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[2], theirs[2])
        torch.testing.assert_close(ours[1], theirs[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [["data.cache.kind=device"], NATIVE], ids=str)
def test_training_from_the_device_and_on_mixed_sizes(cli, options):
    run = cli("train", *WAVES, *options, "trainer.max_epochs=2", "data.cache.root=cache", folder="run", tiny=False)
    assert run.status == 0, run.err
