"""Build the trainer of a run."""

import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.accelerators import AcceleratorRegistry
from pytorch_lightning.plugins.environments import SLURMEnvironment

from vitlab.callbacks import AtomicCheckpointIO
from vitlab.config.build import build
from vitlab.config.nodes import Node
from vitlab.config.trainer_values import check_precision, check_trainer
from vitlab.distributed.data_parallel import register
from vitlab.distributed.signals import Signals
from vitlab.errors import ConfigError
from vitlab.malloc import keep_freed_memory
from vitlab.run.precision import plain_float32_products, speed_up_float32_products
from vitlab.run.preconditions import check_copies, check_launched


def build_trainer(node: Node, folder: Path, loggers: Any, callbacks: list[Any], *, to_run: bool = True) -> pl.Trainer:
    """Build Lightning's trainer with our checkpoints and without its tips; `to_run`: on the machines it names."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    plain_float32_products()  # undo what an earlier run in this process has set
    check_trainer(node)
    check_precision(node.precision)
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
        speed_up_float32_products(trainer.strategy.root_device)
        keep_freed_memory()
    return trainer


def check_accelerator(name: str) -> None:
    """Raise ConfigError for an accelerator that Lightning does not know, or that this machine does not have."""
    kinds = {kind: AcceleratorRegistry[kind]["accelerator"] for kind in AcceleratorRegistry.available_accelerators()}
    found = {"auto", *(kind for kind, accelerator in kinds.items() if accelerator.is_available())}
    found |= {"gpu"} if found & {"cuda", "mps"} else set()
    if name not in found:
        raise ConfigError(f"trainer.accelerator is {name}, and this machine has: {', '.join(sorted(found))}")


def signals_left_to_us(folder: Path) -> list[SLURMEnvironment]:
    """Under SLURM, give Lightning's environment without its own answer to signals: it would save a state that every
    later call loads, even one that is to test the best model. Such a state from before is renamed."""
    if not SLURMEnvironment.detect():
        return []
    for path in folder.glob("hpc_ckpt_*.ckpt"):
        path.rename(path.with_name(path.name.replace("hpc_ckpt", "set_aside")))
    return [SLURMEnvironment(auto_requeue=False)]
