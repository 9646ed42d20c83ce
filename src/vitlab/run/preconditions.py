"""Check what must hold before a run starts or goes on; each refusal is one sentence, before anything is written."""

from pathlib import Path

import pytorch_lightning as pl
from torch import nn

from vitlab.checkpoints.room import check_room
from vitlab.config.nodes import Node
from vitlab.data import DataModule
from vitlab.data.targets import Answers, Classes
from vitlab.distributed.environment import launched
from vitlab.distributed.fully_sharded import FullySharded
from vitlab.errors import ConfigError
from vitlab.tasks import Answering, Task
from vitlab.tasks.supervised import TASKS

LEAST = {  # least values of numbers that Lightning does not check
    **dict.fromkeys(("log_every_n_steps", "check_val_every_n_epoch", "num_nodes"), 1),
    **dict.fromkeys(("min_epochs", "min_steps", "reload_dataloaders_every_n_epochs"), 0),
    **dict.fromkeys(("max_epochs", "max_steps", "num_sanity_val_steps"), -1),
}
OURS = {  # keys of the trainer that a run sets itself
    "default_root_dir": "a run writes to hydra.run.dir",
    "logger": "loggers are chosen by logger=",
    "callbacks": "callbacks are chosen by callbacks=",
    "plugins": "a run has its own",
}
PRECISIONS = ("32-true", "32", 32, "bf16-mixed", "bf16", "16-mixed", "16", 16, None)


def check_agreement(cfg: Node) -> None:
    """Raise ConfigError unless the model takes what the data gives."""
    for place, model in {"model": cfg.model, "model.encoder": cfg.model.get("encoder") or {}}.items():
        own = ("image_size", "in_chans") if place == "model.encoder" else ("image_size", "in_chans", "num_classes")
        for key in own:  # an encoder's head is taken off
            value = model.get(key)
            if value is not None and value != cfg.data.get(key):
                raise ConfigError(
                    f"{place}.{key} is {value}, and data.{key} is {cfg.data.get(key)}; set data.{key} alone"
                )
    if cfg.data.get("patch_size") != cfg.model.get("patch_size"):
        raise ConfigError(
            f"data.patch_size is {cfg.data.get('patch_size')}, and model.patch_size {cfg.model.get('patch_size')}"
        )


def check_images(data: Node) -> None:
    """Raise ConfigError for data without images, for a command that looks at these."""
    if "images" not in data:
        raise ConfigError("this command is of images, and the data has texts alone; choose another data= or run=")


def check_targets(cfg: Node, datamodule: DataModule) -> None:
    """Raise ConfigError unless a task of classes has data with classes, and one that writes has data with texts, and a
    model with a decoder, and one that compares images with texts a model of both."""
    other = f"this data has images {datamodule.targets.kind}; set " + TASKS.get(type(datamodule.targets), "task=...")
    if "num_classes" in cfg.task and not isinstance(datamodule.targets, Classes):
        raise ConfigError(f"the task learns from classes, and {other}")
    if "decoding" in cfg.task and datamodule.vocabulary is None:
        raise ConfigError(f"the task writes texts, and {other}")
    if "templates" in cfg.task and datamodule.vocabulary is None:
        raise ConfigError(f"the task compares images with texts, and {other}")
    if "templates" in cfg.task and "text" not in cfg.model:
        raise ConfigError("the task compares images with texts, and the model reads none; choose model=clip_xs8")
    if "decoding" in cfg.task and not {"decoder", "question_length"} & set(cfg.model):
        raise ConfigError(
            "the task writes texts, and the model none; choose model=reader_xs8, or single_stream_xs8 for questions"
        )


def check_task(cfg: Node, task: Task, datamodule: DataModule, trainer: pl.Trainer) -> None:
    """Raise ConfigError unless the task logs the monitored metric, the schedule fits the run, and the data suits the
    task."""
    check_batches(trainer, datamodule)
    if isinstance(trainer.strategy, FullySharded):
        check_sharded(task, cfg)
    if isinstance(datamodule.targets, Answers) and not isinstance(task, Answering):
        raise ConfigError(
            f"the task reads no questions, and this data has images {datamodule.targets.kind}; set task=answering"
        )
    monitors = {f"callbacks.{key}.monitor": node.get("monitor") for key, node in cfg.callbacks.items()}
    for key, monitor in {"monitor": cfg.monitor, **monitors}.items():
        if monitor is not None and monitor not in task.monitors():
            raise ConfigError(
                f"{key} '{monitor}' is not a metric that every validation of the task gives; use one of: "
                f"{', '.join(task.monitors())}"
            )
    chosen = monitors.get("callbacks.best_model.monitor")
    if chosen is not None and chosen != cfg.monitor:
        raise ConfigError(f"callbacks.best_model.monitor is {chosen}, and monitor {cfg.monitor}; set monitor alone")
    task.schedule(task.num_steps)
    try:
        task.optimization.optimizer(task.groups)
    except (TypeError, ValueError, IndexError) as error:  # a value that the constructor itself refuses
        raise ConfigError(f"optimizer.algorithm: {error}") from error
    late = max(group["from_step"] for group in task.groups)
    if late >= task.num_steps and not trainer.fast_dev_run:
        raise ConfigError(f"optimizer.unfreeze_step {late} is not before the run's end at step {task.num_steps}")
    if cfg.float8:
        from vitlab.run.float8 import check_float8

        check_float8(task.model, trainer.strategy.root_device, trainer.precision)
    if cfg.compile and not task.compilable:
        raise ConfigError(
            f"compile=true would change nothing: {type(task).__name__} does not call the model as a whole; set it to "
            "false"
        )
    if cfg.compile and datamodule.images.mixed_sizes:
        raise ConfigError("compile=true would compile anew for every batch of mixed sizes; set it to false")
    devices = trainer.world_size
    for split in ("val", "test"):
        if len(datamodule.splits[split]) < devices:
            raise ConfigError(
                f"the {split} split holds {len(datamodule.splits[split])} {datamodule.things}, fewer than one for each "
                f"of the {devices} devices; set trainer.devices lower"
            )


def check_disk(task: Task, trainer: pl.Trainer) -> None:
    """Raise StorageError where the disk of the run has no room for its checkpoints."""
    check_room(Path(trainer.default_root_dir), bytes_of_checkpoints(task))


def bytes_of_checkpoints(task: Task) -> int:
    """Estimate the most that lies on the disk at once: the latest state, the one before it and one that is written,
    each with an average and two moments, as Adam's, of the weights; the best model, and one that takes its place."""
    weights = sum(parameter.nbytes for parameter in task.parameters())
    learning = sum(parameter.nbytes for group in task.groups for parameter in group["params"])
    return 3 * (2 * weights + 2 * learning) + 2 * weights


def check_sharded(task: Task, cfg: Node) -> None:
    """Raise ConfigError for a task, model or option that cannot be trained with sharded weights."""
    within = {id(parameter) for parameter in task.model.parameters()}
    if any(id(parameter) not in within for group in task.groups for parameter in group["params"]):
        raise ConfigError(
            f"trainer=fsdp shards models that are called as a whole, and {type(task).__name__} learns parts beside "
            "one; use trainer=ddp"
        )
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in task.model.modules()):
        raise ConfigError("trainer=fsdp: the model holds BatchNorm, which is small: use trainer=ddp")


def check_batches(trainer: pl.Trainer, datamodule: DataModule) -> None:
    """Raise ConfigError for a limit of the trainer that leaves no batch, and for validations rarer than an epoch."""
    batches = {"train": datamodule.steps_per_epoch * trainer.accumulate_grad_batches}
    batches |= {split: len(datamodule.evaluation_loader(split)) for split in ("val", "test")}
    for split, count in batches.items():
        limit = getattr(trainer, f"limit_{split}_batches")
        if isinstance(limit, float) and limit > 0 and int(limit * count) == 0:
            raise ConfigError(f"trainer.limit_{split}_batches {limit} of {count} batches is none; make it larger")
    limit, interval = trainer.limit_train_batches, trainer.val_check_interval
    most = min(batches["train"], limit) if isinstance(limit, int) else int(batches["train"] * limit)
    if trainer.check_val_every_n_epoch is not None and isinstance(interval, int) and interval > most:
        raise ConfigError(
            f"trainer.val_check_interval {interval} is more than the {most} batches of an epoch; make it smaller, or "
            "set trainer.check_val_every_n_epoch to null, so that they are counted over epochs"
        )


def check_trainer(node: Node) -> None:
    """Raise ConfigError for what Lightning would take, and this project does otherwise or not at all."""
    for key, least in LEAST.items():
        value = node.get(key)
        if isinstance(value, int | float) and value < least:
            raise ConfigError(f"trainer.{key} {value} is not at least {least}")
    for key in ("limit_train_batches", "val_check_interval"):
        if node.get(key, 1) in (0, False):
            raise ConfigError(f"trainer.{key} {node[key]} is not above 0: a number of batches, or a share from 0 to 1")
    for key, instead in OURS.items():
        if key in node:
            raise ConfigError(f"trainer.{key} is not read: {instead}")
    limit = node.gradient_clip_val
    if limit is not None and limit <= 0:
        raise ConfigError(f"trainer.gradient_clip_val {limit} is not above 0; null clips nothing")
    if node.get("gradient_clip_algorithm") not in (None, "norm"):
        raise ConfigError("trainer.gradient_clip_algorithm: gradients are clipped by their total norm; leave it out")
    if node.get("accumulate_grad_batches", 1) != 1:
        raise ConfigError(
            "trainer.accumulate_grad_batches follows from global_batch_size and data.device_batch_size; set these"
        )
    if node.get("overfit_batches", 0):
        raise ConfigError(
            "trainer.overfit_batches would train on other images in each epoch; take few with "
            "data.split.labels_per_class"
        )
    if node.use_distributed_sampler:
        raise ConfigError("trainer.use_distributed_sampler would replace the order of samples; set it to false")
    if node.precision in ("16-true", "bf16-true"):
        raise ConfigError(
            f"trainer.precision={node.precision} keeps the weights themselves in half precision, which loses "
            "small updates; use bf16-mixed, 16-mixed or 32-true"
        )
    if node.precision not in PRECISIONS:
        raise ConfigError(
            f"trainer.precision={node.precision} is no precision of training here; use bf16-mixed, 16-mixed or 32-true"
        )


def check_launched(node: Node) -> None:
    """Raise ConfigError for a trainer of several machines that nobody has started on each of them."""
    if node.get("num_nodes", 1) > 1 and not launched():
        raise ConfigError(
            f"trainer.num_nodes={node.num_nodes} needs a process on each machine, and this one is alone: start them by "
            f"srun, or on each by torchrun --nnodes={node.num_nodes} --nproc-per-node=DEVICES -m vitlab train ...; or "
            "set trainer.num_nodes=1"
        )
