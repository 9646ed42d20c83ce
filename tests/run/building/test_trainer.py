"""The trainer of a run: devices that are there, a precision that is found later, and nothing of Lightning's own under
SLURM."""

from types import SimpleNamespace

import pytest
import torch
from conftest import refuses
from pytorch_lightning.accelerators import CUDAAccelerator, MPSAccelerator
from texts import OPTIONS

from vitlab.config.in_process import compose
from vitlab.config.nodes import merge_node
from vitlab.data.batches.batch import Sample, UnreadableImage
from vitlab.errors import ConfigError
from vitlab.models import TextEncoder
from vitlab.run.building.trainer import (
    build_trainer,
    check_accelerator,
    find_devices,
    make_images,
    make_tokens,
    signals_left_to_us,
)
from vitlab.run.hardware.block_timing import FEW
from vitlab.run.hardware.precision import restore_float32_products

SLURM = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1", "SLURM_JOB_NAME": "x"}


@pytest.fixture(autouse=True)
def plain_products():
    """A trainer of a CPU changes how torch multiplies."""
    yield
    restore_float32_products()


@pytest.fixture(scope="module")
def node():
    return compose("train", ["model=vit_mu4", "data=digits", "trainer=cpu"]).trainer


@pytest.mark.parametrize("precision", ["auto", None, "32-true"])
def test_a_precision_that_is_not_found_yet_is_float32(node, tmp_path, precision):
    trainer = build_trainer(merge_node(node, {"precision": precision}), tmp_path, False, [])
    assert trainer.precision == "32-true"
    assert trainer.default_root_dir == str(tmp_path)
    assert not list(tmp_path.iterdir())


def test_devices_of_all_machines_are_counted_without_them(tmp_path):
    words = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.num_nodes=3"]
    node = compose("train", ["model=vit_mu4", "data=digits", *words]).trainer
    assert find_devices(node, tmp_path, to_run=False) == (6, torch.device("cpu"))
    with pytest.raises(ConfigError, match="needs processes on each machine, but there is only this one"):
        find_devices(node, tmp_path)


def test_a_machine_without_a_gpu_says_so(cli, monkeypatch):
    for accelerator in (CUDAAccelerator, MPSAccelerator):
        monkeypatch.setattr(accelerator, "is_available", lambda: False)
    run = cli("train", "trainer=gpu", folder="run")
    assert refuses(run, "accelerator is gpu, but this machine has only auto, cpu"), run.err
    assert not run.folder.exists()


def test_a_gpu_is_one_of_either_kind(monkeypatch):
    monkeypatch.setattr(CUDAAccelerator, "is_available", lambda: False)
    monkeypatch.setattr(MPSAccelerator, "is_available", lambda: True)
    for name in ("gpu", "mps", "cpu", "auto"):
        check_accelerator(name)
    for name in ("cuda", "gppu"):
        with pytest.raises(
            ConfigError, match=f"trainer.accelerator is {name}, but this machine has only auto, cpu, gpu"
        ):
            check_accelerator(name)


def test_under_slurm_lightning_saves_nothing_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "hpc_ckpt_1.ckpt").touch()
    for name in SLURM:
        monkeypatch.delenv(name, raising=False)
    assert signals_left_to_us(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["hpc_ckpt_1.ckpt"]
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    (environment,) = signals_left_to_us(tmp_path)
    assert not environment.auto_requeue
    assert [path.name for path in tmp_path.iterdir()] == ["set_aside_1.ckpt"]


# -- what the precision is measured on


def test_the_longest_texts_are_measured():
    (tokens,) = make_tokens(TextEncoder(causal=False, **OPTIONS))
    assert (tokens.shape, tokens.dtype, tokens.device.type) == ((FEW, 9), torch.long, "meta")


def test_images_of_several_sizes_are_judged_by_the_largest():
    def samples(keys):
        sizes = [(8, 8), (8, 24), (16, 8)]  # the last is higher, and not larger
        return [UnreadableImage("a", "damaged", 0), *(Sample((torch.empty(1, *size),), 1) for size in sizes)]

    data = SimpleNamespace(in_chans=1, image_size=16, patch_size=4, images=SimpleNamespace(mixed_sizes=True))
    data.training = type("Training", (), {"samples": staticmethod(samples), "__len__": lambda self: 4})()
    patches, grid = make_images(data)
    assert (patches.shape, grid) == ((FEW, 12, 16), (2, 6))
    data.images.mixed_sizes = False
    assert make_images(data)[1] == (4, 4)
    data.patch_size = None
    assert make_images(data)[0].shape == (FEW, 1, 16, 16)
