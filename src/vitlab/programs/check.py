"""Check whether a training would run, and what it would cost: everything that can be known of it in seconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from vitlab.checkpoints.run_folder import check_unused, run_folder
from vitlab.config.identity import AUTO, find_own_run
from vitlab.config.job import Job
from vitlab.config.nodes import remove_keys
from vitlab.counting import multiply_accumulates
from vitlab.counting.memory import GIB, MIB, RESERVE, format_bytes
from vitlab.data import DataModule, ImageDataModule
from vitlab.errors import ConfigError
from vitlab.programs import train
from vitlab.reports.run import read_end, read_result
from vitlab.run.building.autoconfig import find_values
from vitlab.run.building.model import build_model, recompute_activations
from vitlab.run.building.parts import Parts, build_datamodule, build_task
from vitlab.run.building.run_loggers import try_callbacks_and_loggers
from vitlab.run.building.trainer import find_devices
from vitlab.run.checks.batch_advice import count_device_memory, find_largest_part
from vitlab.run.checks.memory_estimate import (
    count_gathered,
    count_sharing_devices,
    divide_memory,
    estimate_device_memory,
)
from vitlab.run.checks.preconditions import estimate_checkpoint_bytes
from vitlab.run.hardware.step_timing import measure_steps
from vitlab.run.inference.teacher import build_teacher
from vitlab.run.printing import console
from vitlab.run.printing.next_steps import describe_complete
from vitlab.run.storage.start import RunPlace, Start, start_or_resume

FEW = 2  # images of the first step that is measured: batch normalisation takes no fewer
OWN_KEYS = ("memory_gib", "seconds")
CPU_FLOPS = 5e10  # a second, of a core or two: which models a CPU is not tried with


def check(cfg: DictConfig) -> None:
    """Print what the training of this config is and demands, from a model that holds no numbers, and the speed of a few
    steps. Raises the VitlabError that the training would raise, with what to change."""
    job = Job.current()
    resume = cfg.resume
    if resume == AUTO:
        run = find_run(cfg, job)
        if run is not None and read_result(run) is not None:
            show("answer", f"{run} is complete; there is nothing to do")
            return
        resume = None if run is None else str(run)
    if resume is None and job.named:
        check_unused(job.folder)
    folder = job.folder if resume is None else run_folder(resume).absolute()
    start = start_or_resume(cfg, job, RunPlace(str(folder), resume, read_end(folder) if resume else None))
    if "cache" in start.cfg.data:  # the training builds it
        start = replace(start, cfg=change_config(start.cfg, {"data": {"cache": {"kind": "none"}}}))
    try_callbacks_and_loggers(start)
    found = find_values(start.cfg, find_devices(start.cfg.trainer, folder, to_run=False))
    start = replace(start, cfg=found.cfg)
    parts = train.build(start, found.datamodule, device="meta")
    train.check(start, parts)
    if start.is_complete(parts.task.num_steps):
        show("answer", describe_complete(start))
        return
    console.print_start(found, parts)
    needed = estimate_checkpoint_bytes(parts.task)
    show("disk", f"{needed / MIB:,.0f} MiB of checkpoints at most, for which there is room")
    show_memory(parts, cfg)
    show_speed(start, parts, cfg.seconds)
    show("answer", "yes")


def find_run(cfg: DictConfig, job: Job) -> Path | None:
    """Find the run that the training would resume: in its folder, where one is given."""
    there = [job.folder] if job.named else sorted(Path("runs", cfg.name).glob("*"))
    return find_own_run(remove_keys(cfg, OWN_KEYS), there)


def show_memory(parts: Parts, cfg: DictConfig) -> None:
    """Tell what a device holds, with each strategy where there are several. Raises ConfigError where it cannot."""
    datamodule, trainer, model = parts.datamodule, parts.trainer, parts.task.model
    whole = estimate_device_memory(parts.task, datamodule, trainer)
    if whole is None:
        show("memory", "not counted: the model is of another library, or writes texts")
        return
    there = int(cfg.memory_gib * GIB) if cfg.memory_gib else count_device_memory(trainer)
    size = datamodule.global_batch_size // trainer.world_size // trainer.accumulate_grad_batches
    _, memory, evaluation = divide_memory(model, whole, count_sharing_devices(trainer), count_gathered(trainer))
    needed = memory.fixed + size * memory.per_image
    show(
        "memory",
        f"{format_bytes(needed)} of {format_bytes(there)} on each device: {format_bytes(memory.fixed)} for weights, "
        f"gradients and optimizer, {format_bytes(memory.per_image)} for each of {size} images",
    )
    sharing = {"ddp": 1, "fsdp": trainer.world_size, "hsdp": trainer.world_size // trainer.num_nodes}
    for name, devices in sharing.items() if trainer.world_size > 1 else ():
        share = divide_memory(model, whole, devices)
        trained = share.memory.fixed + size * share.memory.per_image
        show(
            name,
            f"{share.parameters:,} parameters on each device, {format_bytes(trained)} in training, "
            f"{format_bytes(share.evaluation)} and its activations in an evaluation",
        )
    if evaluation > there * (1 - RESERVE):
        raise ConfigError(
            f"an evaluation gathers all weights on each device and needs {format_bytes(evaluation)}, but a "
            f"device has {format_bytes(there)}, of which a tenth stays free; choose a smaller model"
        )
    most = memory.largest_batch(there)
    if size <= most:
        return
    best = find_largest_part(datamodule.global_batch_size // trainer.world_size, most)
    advice = (
        f"set data.device_batch_size={best}" if best else "set activation_checkpointing=true, or choose a smaller model"
    )
    raise ConfigError(
        f"a batch of {size} images does not fit on a device of {format_bytes(there)}, of which a tenth stays free; at "
        "most "
        f"{most:,} fit; {advice}"
    )


def show_speed(start: Start, parts: Parts, seconds: float) -> None:
    """Train for some seconds, and tell how long an epoch takes."""
    datamodule, task, trainer = parts.datamodule, parts.task, parts.trainer
    size = datamodule.global_batch_size // trainer.world_size // trainer.accumulate_grad_batches
    on_cpu = trainer.strategy.root_device.type == "cpu"
    if seconds == 0:
        show("speed", "not measured: not asked for")
        return
    if on_cpu and 6 * FEW * count_operations(task.model, datamodule) > seconds * CPU_FLOPS:
        show("speed", f"not measured: a step would take longer than seconds={seconds:g}")
        return
    source = datamodule.source
    speed = measure_steps(*build_trainable(start, source, min(size, FEW)), trainer, seconds / 4)
    more = min(size, int(seconds / 4 / speed.learning))
    if more > FEW:
        speed = measure_steps(*build_trainable(start, source, more), trainer, seconds / 2)
    images = isinstance(datamodule, ImageDataModule)
    workers = max(datamodule.loading.num_workers or 0, 1) if images else 1
    reading, learning = speed.reading / workers, speed.learning
    samples = datamodule.count_steps_per_epoch() * datamodule.global_batch_size // trainer.world_size
    epoch = samples * max(reading, learning) + datamodule.count_steps_per_epoch() * speed.updating
    epochs = task.num_steps / datamodule.count_steps_per_epoch()
    show(
        "speed",
        f"{1 / learning:,.0f} {datamodule.things}/s of each device, {1 / speed.reading:,.0f} read by each process",
    )
    show("time", f"{duration(epoch)} an epoch, {duration(epochs * epoch)} in all, without validations")
    if images and reading > learning:
        show(
            "",
            f"reading is the slower part: with {-int(-speed.reading // learning)} data.loading.num_workers it is not",
        )


def build_trainable(start: Start, source: Any, size: int) -> tuple[Any, DataModule]:
    """Make a task and its data for steps of that many images."""
    alone = {"device_batch_size": None} | ({"loading": {"num_workers": 0}} if "loading" in start.cfg.data else {})
    cfg = change_config(start.cfg, {"global_batch_size": size, "data": alone})
    datamodule = build_datamodule(cfg, source)
    datamodule.setup()
    model = build_model(cfg.model)
    teacher = build_teacher(cfg) if "teacher" in cfg else None
    task = build_task(cfg, model, teacher, datamodule.vocabulary)
    if cfg.activation_checkpointing:
        recompute_activations(model)
    return task, datamodule


def count_operations(model: torch.nn.Module, datamodule: DataModule) -> int:
    """Count multiply-accumulates for one image; 0 for a model that cannot be counted."""
    if not isinstance(datamodule, ImageDataModule):
        return 0
    try:
        return multiply_accumulates(model, (datamodule.in_chans, datamodule.image_size, datamodule.image_size))
    except Exception:  # whatever a model of another library raises when its tensors hold nothing
        return 0


def change_config(cfg: DictConfig, changes: dict[str, Any]) -> DictConfig:
    merged = OmegaConf.merge(cfg, changes)
    assert isinstance(merged, DictConfig)
    return merged


def duration(seconds: float) -> str:
    """Write a duration in two parts, such as 3 h 20 min."""
    parts = [(int(seconds // 86400), "d"), (int(seconds // 3600 % 24), "h"), (int(seconds // 60 % 60), "min")]
    words = [f"{count} {unit}" for count, unit in parts if count][:2]
    return " ".join(words) if seconds >= 600 else f"{seconds:.3g} s"


def show(name: str, fact: str) -> None:
    Console(soft_wrap=True, highlight=False, markup=False).print(f"{name:<9}{fact}")
