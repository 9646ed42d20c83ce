"""Check what must hold before a run starts or goes on; each refusal is one sentence, before anything is written."""

from pathlib import Path

import pytorch_lightning as pl
from omegaconf import DictConfig
from torch import nn

from vitlab.checkpoints.run_folder import check_room
from vitlab.data import DataModule, ImageDataModule
from vitlab.data.targets import Answers, Classes
from vitlab.distributed.environment import has_launcher
from vitlab.distributed.fully_sharded import FullySharded
from vitlab.errors import ConfigError
from vitlab.tasks import Answering, Task
from vitlab.tasks.supervised import TASKS

RESAMPLED = ("pos_embed", "relative_position_bias_table")  # positions that may learn, by timm's names


def check_agreement(cfg: DictConfig) -> None:
    """Raise ConfigError unless the model takes what the data gives."""
    for place, model in {"model": cfg.model, "model.encoder": cfg.model.get("encoder") or {}}.items():
        own = ("image_size", "in_chans") if place == "model.encoder" else ("image_size", "in_chans", "num_classes")
        for key in own:  # an encoder's head is taken off
            value = model.get(key)
            if value is not None and value != cfg.data.get(key):
                raise ConfigError(
                    f"{place}.{key} is {value}, but data.{key} is {cfg.data.get(key)}; set only data.{key}"
                )
    if cfg.data.get("patch_size") != cfg.model.get("patch_size"):
        raise ConfigError(
            f"data.patch_size is {cfg.data.get('patch_size')}, but model.patch_size is {cfg.model.get('patch_size')}; "
            "make them equal"
        )


def check_inputs(cfg: DictConfig) -> None:
    """Raise ConfigError for a model that reads texts with data of images, and for data of texts with anything else."""
    reads_texts, has_texts = "vocab_size" in (cfg.model.get("encoder") or {}), "images" not in cfg.data
    if reads_texts and not has_texts:
        raise ConfigError(
            "the model reads texts, but the data has images; choose data=text_pairs for your own texts, or a model "
            "of images, such as model=reader_xs8"
        )
    if has_texts and not reads_texts:
        raise ConfigError(
            "the data has only texts, but the model reads images; choose model=transformer_mu, with task=sequence"
        )
    if has_texts and "decoding" not in cfg.task:
        raise ConfigError("the data has only texts, but the task needs images; set task=sequence")


def check_images(data: DictConfig) -> None:
    """Raise ConfigError for data without images, for a command that looks at these."""
    if "images" not in data:
        raise ConfigError("this command needs images, but the data has only texts; choose another data= or run=")


def check_targets(cfg: DictConfig, datamodule: DataModule) -> None:
    """Raise ConfigError unless a task of classes has data with classes, and one that writes has data with texts, and a
    model with a decoder, and one that compares images with texts a model of both; and a model of texts has texts, and
    one that is asked has questions."""
    there = f"this data has {datamodule.things} {datamodule.targets.kind}"
    task = TASKS.get(type(datamodule.targets), "task=...") if "images" in cfg.data else "task=sequence"
    other = f"{there}; set {task}"
    if "num_classes" in cfg.task and not isinstance(datamodule.targets, Classes):
        raise ConfigError(f"the task learns from classes, but {other}")
    if "decoding" in cfg.task and datamodule.vocabulary is None:
        raise ConfigError(f"the task writes texts, but {other}")
    if "templates" in cfg.task and datamodule.vocabulary is None:
        raise ConfigError(f"the task compares images with texts, but {other}")
    if "templates" in cfg.task and "text" not in cfg.model:
        raise ConfigError("the task compares images with texts, but the model reads no texts; choose model=clip_xs8")
    if "decoding" in cfg.task and not {"decoder", "question_length"} & set(cfg.model):
        raise ConfigError(
            "the task writes texts, but the model does not; choose model=reader_xs8, or single_stream_xs8 for questions"
        )
    parts = (cfg.model, cfg.model.get("text") or (), cfg.model.get("decoder") or ())
    if datamodule.vocabulary is None and any("vocab_size" in part for part in parts):
        raise ConfigError(f"the model takes texts, but {there}; choose a model of images only, such as model=vit_xs8")
    if "question_length" in cfg.model and not isinstance(datamodule.targets, Answers):
        if cfg.task["_target_"].endswith(".Answering"):
            raise ConfigError(f"the task answers questions, but {other}")
        raise ConfigError(f"the model needs questions, but {there}; choose another model=")


def check_task(cfg: DictConfig, task: Task, datamodule: DataModule, trainer: pl.Trainer) -> None:
    """Raise ConfigError unless the task logs the monitored metric, the schedule fits the run, and the data suits the
    task."""
    check_batches(trainer, datamodule)
    if isinstance(trainer.strategy, FullySharded):
        check_sharded(task, cfg)
    if isinstance(datamodule.targets, Answers) and not isinstance(task, Answering):
        raise ConfigError(
            f"the task reads no questions, but this data has images {datamodule.targets.kind}; set task=answering"
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
        raise ConfigError(f"callbacks.best_model.monitor is {chosen}, but monitor is {cfg.monitor}; set only monitor")
    task.schedule(task.num_steps)
    try:
        task.optimization.optimizer(task.groups)
    except (TypeError, ValueError, IndexError) as error:  # a value that the constructor itself refuses
        raise ConfigError(f"optimizer.algorithm: {error}") from error
    late = max(group["from_step"] for group in task.groups)
    if late >= task.num_steps and not trainer.fast_dev_run:
        raise ConfigError(f"optimizer.unfreeze_step {late} is not before the end of the run at step {task.num_steps}")
    if cfg.float8:
        from vitlab.run.hardware.float8 import check_float8

        check_float8(task.model, trainer.strategy.root_device, trainer.precision, cfg.float8, cfg.compile)
    check_products(cfg, task, datamodule, trainer)
    if cfg.compile and not task.compilable:
        raise ConfigError(
            f"compile=true would change nothing: {type(task).__name__} calls only parts of the model; set it to false"
        )
    if cfg.compile and datamodule.images.mixed_sizes:
        raise ConfigError("compile=true would compile again for every batch of mixed sizes; set it to false")
    devices = trainer.world_size
    for split in ("val", "test"):
        if len(datamodule.splits[split]) < devices:
            raise ConfigError(
                f"the {split} split holds {len(datamodule.splits[split])} {datamodule.things}, fewer than "
                f"the {devices} devices; set a smaller trainer.devices"
            )


def check_products(cfg: DictConfig, task: Task, datamodule: DataModule, trainer: pl.Trainer) -> None:
    """Raise ConfigError for options of a GPU's arithmetic that this run cannot have."""
    device = trainer.strategy.root_device.type
    if cfg.get("tf32") and (device != "cuda" or trainer.precision != "32-true"):
        raise ConfigError(
            f"tf32=true is for trainer.precision=32-true on a GPU, not for {trainer.precision} on {device}; set it to "
            "false"
        )
    if cfg.compile == "reduce-overhead" and isinstance(trainer.strategy, FullySharded):
        raise ConfigError(
            "compile=reduce-overhead records CUDA graphs, which sharded weights cannot have; set compile=true"
        )
    names = [name for name, parameter in task.model.named_parameters() if parameter.requires_grad]
    resampled = [name for name in names if name.rpartition(".")[2].startswith(RESAMPLED)]
    if cfg.trainer.get("deterministic") is True and device == "cuda" and resampled and has_several_sizes(datamodule):
        raise ConfigError(
            f"trainer.deterministic=true: torch cannot resample {resampled[0]} for images of several sizes in the same "
            "way twice on a GPU; choose fixed positions (model.position), one size, or trainer.deterministic=warn"
        )


def has_several_sizes(datamodule: DataModule) -> bool:
    """Whether a training has images of several sizes, one after the other or as views of an image."""
    if not isinstance(datamodule, ImageDataModule):
        return False
    views = {crop.image_size for crop in datamodule.images.train_crop.views()}
    return datamodule.images.mixed_sizes or datamodule.num_image_sizes > 1 or len(views) > 1


def check_disk(task: Task, trainer: pl.Trainer) -> None:
    """Raise StorageError where the disk of the run has no room for its checkpoints."""
    check_room(Path(trainer.default_root_dir), estimate_checkpoint_bytes(task))


def estimate_checkpoint_bytes(task: Task) -> int:
    """Estimate the most that lies on the disk at once: the latest state, the one before it and one that is written,
    each with an average and two moments, as Adam's, of the weights; the best model, and one that takes its place."""
    weights: int = sum(parameter.nbytes for parameter in task.parameters())
    learning: int = sum(parameter.nbytes for group in task.groups for parameter in group["params"])
    return 3 * (2 * weights + 2 * learning) + 2 * weights


def check_sharded(task: Task, cfg: DictConfig) -> None:
    """Raise ConfigError for a task, model or option that cannot be trained with sharded weights."""
    within = {id(parameter) for parameter in task.model.parameters()}
    if any(id(parameter) not in within for group in task.groups for parameter in group["params"]):
        raise ConfigError(
            f"trainer=fsdp cannot shard {type(task).__name__}, which trains parts outside its model; use trainer=ddp"
        )
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in task.model.modules()):
        raise ConfigError("trainer=fsdp: the model contains BatchNorm, which cannot be sharded; use trainer=ddp")
    if cfg.trainer.strategy.get("gather_bf16") and cfg.trainer.precision != "bf16-mixed":
        raise ConfigError(
            "trainer.strategy.gather_bf16=true computes in bfloat16, but trainer.precision is "
            f"{cfg.trainer.precision}; set trainer.precision=bf16-mixed"
        )


def check_batches(trainer: pl.Trainer, datamodule: DataModule) -> None:
    """Raise ConfigError for a limit of the trainer that leaves no batch, and for validations rarer than an epoch."""
    batches = {"train": datamodule.steps_per_epoch * trainer.accumulate_grad_batches}
    batches |= {split: len(datamodule.evaluation_loader(split)) for split in ("val", "test")}
    for split, count in batches.items():
        limit = getattr(trainer, f"limit_{split}_batches")
        if isinstance(limit, float) and limit > 0 and int(limit * count) == 0:
            raise ConfigError(f"trainer.limit_{split}_batches {limit} of {count} batches leaves none; make it larger")
    limit, interval = trainer.limit_train_batches, trainer.val_check_interval
    most = min(batches["train"], limit) if isinstance(limit, int) else int(batches["train"] * limit)
    if trainer.check_val_every_n_epoch is not None and isinstance(interval, int) and interval > most:
        raise ConfigError(
            f"trainer.val_check_interval {interval} is more than the {most} batches of an epoch; make it smaller, or "
            "set trainer.check_val_every_n_epoch=null to count batches over epochs"
        )


def check_copies(trainer: pl.Trainer) -> None:
    """Raise ConfigError for devices that cannot share out the copies of a model equally."""
    strategy, devices = trainer.strategy, trainer.world_size
    if isinstance(strategy, FullySharded) and devices % strategy.copies:
        raise ConfigError(f"trainer.strategy.copies {strategy.copies} does not divide the {devices} devices")


def check_launched(node: DictConfig) -> None:
    """Raise ConfigError for a trainer of several machines that nobody has started on each of them."""
    if node.get("num_nodes", 1) > 1 and not has_launcher():
        raise ConfigError(
            f"trainer.num_nodes={node.num_nodes} needs processes on each machine, but there is only this one; start "
            "them with "
            f"srun, or on each machine with torchrun --nnodes={node.num_nodes} --nproc-per-node=DEVICES -m vitlab "
            "train ...; or "
            "set trainer.num_nodes=1"
        )
