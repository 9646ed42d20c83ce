"""Build the trainer of a run."""

import logging
import math
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig
from pytorch_lightning.accelerators import AcceleratorRegistry
from pytorch_lightning.plugins.environments import SLURMEnvironment

from vitlab.callbacks import AtomicCheckpointIO
from vitlab.config.build import build
from vitlab.config.found import OPEN
from vitlab.config.nodes import merge_node
from vitlab.config.trainer_values import check_precision, check_trainer
from vitlab.data import DataModule
from vitlab.data.batches.batch import Sample
from vitlab.data.order.sampler import Key
from vitlab.distributed.agreement import decide_on_rank_zero
from vitlab.distributed.data_parallel import register
from vitlab.distributed.launcher import Launcher
from vitlab.distributed.signals import Signals
from vitlab.errors import ConfigError
from vitlab.layers import patchify
from vitlab.machine import keep_freed_memory
from vitlab.models import TextEncoder, VisionTransformer
from vitlab.run.building.model import build_model
from vitlab.run.checks.preconditions import check_copies, check_launched
from vitlab.run.hardware.block_timing import FEW
from vitlab.run.hardware.precision import (
    FLOAT32,
    PrecisionChoice,
    find_precision,
    restore_float32_products,
    speed_up_float32_products,
)

FIRST = 16  # images whose sizes are looked at


def build_trainer(
    node: DictConfig, folder: Path, loggers: Any, callbacks: list[Any], *, to_run: bool = True
) -> pl.Trainer:
    """Build Lightning's trainer with our checkpoints and without its tips; `to_run`: on the machines it names."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("pytorch_lightning.profilers.profiler").setLevel(logging.INFO)  # its table is what was asked for
    restore_float32_products()  # undo what an earlier run in this process has set
    check_trainer(node)
    check_precision(node.precision)
    if node.precision in OPEN:
        node = merge_node(node, {"precision": FLOAT32})
    if to_run:
        check_launched(node)
    check_accelerator(node.accelerator)
    register()
    trainer = build(
        node,
        "trainer",
        default_root_dir=str(folder),
        logger=loggers,
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO(), *signals_left_to_us(folder)],
    )
    check_copies(trainer)
    trainer._signal_connector = Signals(trainer)
    if trainer.strategy.root_device.type == "cpu":
        keep_freed_memory()
        if trainer.precision == FLOAT32:
            speed_up_float32_products(trainer.strategy.root_device)
    return trainer


def watch_ranks(trainer: pl.Trainer) -> AbstractContextManager[None]:
    """Watch the other processes of a run of several, as `Launcher.watch` does."""
    launcher = trainer.strategy.launcher
    return launcher.watch() if isinstance(launcher, Launcher) else nullcontext()


class Devices(NamedTuple):
    """Number of devices that train together, and the one that is this process's own."""

    number: int
    own: torch.device


def find_devices(node: DictConfig, folder: Path, *, to_run: bool = True) -> Devices:
    """Return the devices that a trainer of this config would use. Raises ConfigError as `build_trainer`."""
    trainer = build_trainer(node, folder, False, [], to_run=to_run)
    return Devices(trainer.world_size, trainer.strategy.root_device)


def find_run_precision(
    cfg: DictConfig, datamodule: DataModule, batch_size: int, device: torch.device
) -> PrecisionChoice:
    """Return the precision in which a device trains the config's model fastest, and how that was measured. The first
    process measures for all. Of a model with an encoder, only the encoder is timed."""
    with torch.device("meta"):
        model = build_model(cfg.model)
    inner = getattr(model, "encoder", None)
    timed = inner if isinstance(inner, VisionTransformer | TextEncoder) else model
    inputs = make_tokens(timed) if isinstance(timed, TextEncoder) else make_images(datamodule)
    return PrecisionChoice(*decide_on_rank_zero("precision", lambda: find_precision(timed, inputs, batch_size, device)))


def make_tokens(encoder: TextEncoder) -> tuple[Any, ...]:
    """Make the longest texts that an encoder takes, on the device "meta"."""
    return (torch.zeros(FEW, encoder.max_length, dtype=torch.long, device="meta"),)


def make_images(datamodule: Any) -> tuple[Any, ...]:
    """Make what the model takes of images, on the device "meta", in the size that it is trained on: where sizes differ,
    in that of the largest of the first images."""
    shapes = [torch.Size([datamodule.in_chans, datamodule.image_size, datamodule.image_size])]
    if datamodule.images.mixed_sizes:
        first = datamodule.training.samples([Key(0, index) for index in range(min(FIRST, len(datamodule.training)))])
        shapes = [sample.image.shape for sample in first if isinstance(sample, Sample)] or shapes
    images, patch_size = torch.empty(FEW, *max(shapes, key=math.prod), device="meta"), datamodule.patch_size
    if patch_size is None:
        return (images,)
    return patchify(images, patch_size), tuple(size // patch_size for size in images.shape[2:])


def check_accelerator(name: str) -> None:
    """Raise ConfigError for an accelerator that Lightning does not know, or that this machine does not have."""
    kinds = {kind: AcceleratorRegistry[kind]["accelerator"] for kind in AcceleratorRegistry.available_accelerators()}
    found = {"auto", *(kind for kind, accelerator in kinds.items() if accelerator.is_available())}
    found |= {"gpu"} if found & {"cuda", "mps"} else set()
    if name not in found:
        raise ConfigError(f"trainer.accelerator is {name}, but this machine has only {', '.join(sorted(found))}")


def signals_left_to_us(folder: Path) -> list[SLURMEnvironment]:
    """Under SLURM, give Lightning's environment without its own answer to signals: it would save a state that every
    later call loads, even one that is to test the best model. Such a state from before is renamed."""
    if not SLURMEnvironment.detect():
        return []
    for path in folder.glob("hpc_ckpt_*.ckpt"):
        path.rename(path.with_name(path.name.replace("hpc_ckpt", "set_aside")))
    return [SLURMEnvironment(auto_requeue=False)]
