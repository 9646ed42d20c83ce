"""Training: from the composed config to a tested model."""

import secrets
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch.nn import Module

from vitlab.callbacks import BestModel, FeatureProbe, StepLog, WeightAverage, check_averages
from vitlab.checkpoints import file
from vitlab.checkpoints.run_folder import find_checkpoint, run_folder
from vitlab.data import ImageDataModule
from vitlab.errors import CheckpointError, ConfigError, DistributedError
from vitlab.loggers import MetricsCSV, WeightsAndBiases
from vitlab.run import report
from vitlab.run.build import build, from_saved, plain, portable
from vitlab.run.command import Job
from vitlab.run.model import build_model, load_pretrained, recompute_activations
from vitlab.run.overlap import print_overlap
from vitlab.run.provenance import record_start, versions
from vitlab.run.resume import resumed_config
from vitlab.run.teacher import build_teacher
from vitlab.run.trainer import build_trainer, set_accumulation
from vitlab.tasks import Task
from vitlab.tasks.supervised import Supervised
from vitlab.tasks.task import leaves_out
from vitlab.tasks.teacher import Teacher


def train(cfg: DictConfig) -> float | None:
    """Train, keep the best model, test it; returns the best value of the monitored metric.

    Everything a user can get wrong is checked before the first batch and before a W&B run exists.
    """
    job = Job.current()
    checkpoint: dict[str, Any] = {}
    folder = job.folder
    if cfg.resume is not None:
        if job.sweep is not None:
            raise ConfigError("resume= goes on with one run; give it without -m")
        path = find_checkpoint(cfg.resume, "latest")
        checkpoint, folder = file.read(path), run_folder(cfg.resume).absolute()
        if "optimizer_states" not in checkpoint:
            raise CheckpointError(f"{path} holds weights only; resume from the run's folder or its latest.ckpt")
        saved = from_saved(checkpoint["run"]["config"], str(path))
        cfg = resumed_config(saved, checkpoint["run"]["choices"], cfg, job.overrides)
    first_step = int(checkpoint.get("global_step", 0))

    check_agreement(cfg)
    pl.seed_everything(cfg.seed, workers=False, verbose=False)
    run_id = checkpoint.get("run", {}).get("wandb_id") or secrets.token_hex(4)
    loggers = build_loggers(cfg, folder, job, run_id, first_step)
    callbacks = [build(node, f"callbacks.{key}") for key, node in cfg.callbacks.items()]
    trainer = build_trainer(cfg.trainer, folder, loggers, callbacks)
    if trainer.world_size > 1 and job.sweep is not None:
        raise DistributedError(
            "several devices in one multirun would mix up the ranks of its jobs; set trainer.devices=1, or start each "
            "job by itself"
        )
    datamodule = build_datamodule(cfg)
    datamodule.trainer = trainer
    batch_size = set_accumulation(trainer, datamodule)
    datamodule.prepare_data()
    datamodule.setup()
    model = build_model(cfg.model)
    task = build_task(cfg, model, build_teacher(cfg))
    datamodule.num_steps = planned_steps(trainer, datamodule)
    task.plan(datamodule.num_steps, datamodule)
    check_task(cfg, task)
    check_averages(callbacks, task.num_steps)
    for callback in callbacks:
        if isinstance(callback, FeatureProbe):
            callback.check(datamodule, trainer.world_size)
    if cfg.activation_checkpointing:
        recompute_activations(model)
    task.record = run_record(cfg, job, datamodule, batch_size, run_id, checkpoint)
    if checkpoint:
        check_continuation(checkpoint, task, datamodule, trainer, first_step)

    report.print_start(cfg, datamodule, task, trainer)
    print_overlap(datamodule.splits)
    transfer = None if checkpoint else load_pretrained(model, cfg.model)
    if trainer.is_global_zero:
        OmegaConf.save(OmegaConf.create(plain(cfg)), folder / "config.yaml")
        record_start(folder, job.overrides, first_step)
        if transfer is not None:
            transfer.save(folder / "pretrained.csv")
            transfer.show()
    if cfg.compile:
        task.model.compile()
    exit_code = 1
    try:
        result = fit_and_test(task, datamodule, trainer, str(path) if checkpoint else None, first_step)
        exit_code = 0
    finally:
        for logger in loggers:
            if isinstance(logger, WeightsAndBiases):
                logger.close(exit_code)
    finish(cfg, folder, result, task)
    return result["score"]


# -- building


def build_loggers(cfg: DictConfig, folder: Path, job: Job, run_id: str, first_step: int) -> list[pl.loggers.Logger]:
    """metrics.csv always, and those of the config."""
    loggers: list[pl.loggers.Logger] = [MetricsCSV(folder=str(folder), first_step=first_step)]
    group = str(job.sweep.relative_to(job.sweep.parents[1])) if job.sweep else None
    for key, node in cfg.logger.items():
        name = f"{cfg.name}/{folder.name}"
        loggers.append(
            build(
                node, f"logger.{key}", folder=str(folder), name=name, group=group, run_id=run_id, run_config=plain(cfg)
            )
        )
    return loggers


def build_datamodule(cfg: DictConfig) -> ImageDataModule:
    """With all that is done to training images."""
    options = {key: build(cfg[key], key) for key in ("augmentation", "mixing", "resolution") if cfg[key]}
    return build(cfg.data, "data", **options)


def build_task(cfg: DictConfig, model: Module, teacher: Teacher | None = None) -> Task:
    """A task that has a teacher needs it in training alone."""
    return build(
        cfg.task,
        "task",
        model=model,
        **({"teacher": teacher} if "teacher" in cfg else {}),
        optimization=build(cfg.optimizer, "optimizer"),
        schedule=lambda num_steps: build(cfg.schedule, "schedule", num_steps=num_steps),
    )


def planned_steps(trainer: pl.Trainer, datamodule: ImageDataModule) -> int:
    """Optimizer steps of the whole run, from trainer.max_epochs and trainer.max_steps."""
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs * datamodule.trained_steps_per_epoch())
    if trainer.max_steps >= 0:
        limits.append(trainer.max_steps)
    if not limits:
        raise ConfigError("a run needs an end: set trainer.max_epochs or trainer.max_steps")
    return min(limits)


def twice_as_long(trainer: DictConfig) -> str:
    """The override by which a run ends after as many steps again."""
    if trainer.max_steps >= 0:
        return f"trainer.max_epochs=-1 trainer.max_steps={2 * trainer.max_steps}"
    return f"trainer.max_epochs={2 * trainer.max_epochs}"


# -- checking


def check_agreement(cfg: DictConfig) -> None:
    """The model takes what the data gives."""
    for place, model in {"model": cfg.model, "model.encoder": cfg.model.get("encoder") or {}}.items():
        for key in ("image_size", "in_chans", "num_classes"):
            value = model.get(key)
            if value is not None and value != cfg.data[key]:
                raise ConfigError(f"{place}.{key} is {value}, and data.{key} is {cfg.data[key]}; set data.{key} alone")
    if cfg.data.patch_size != cfg.model.get("patch_size"):
        raise ConfigError(
            f"data.patch_size is {cfg.data.patch_size}, and model.patch_size {cfg.model.get('patch_size')}"
        )


def check_task(cfg: DictConfig, task: Any) -> None:
    """The monitored metric is one that the task logs, and the schedule fits the run."""
    monitors = {f"callbacks.{key}.monitor": node.get("monitor") for key, node in cfg.callbacks.items()}
    for key, monitor in {"monitor": cfg.monitor, **monitors}.items():
        if monitor is not None and monitor not in task.monitors():
            raise ConfigError(
                f"{key} '{monitor}' is a metric that nobody logs; use one of: {', '.join(task.monitors())}"
            )
    task.schedule(task.num_steps)
    if cfg.compile and not task.compilable:
        raise ConfigError(
            f"compile=true would change nothing: {type(task).__name__} does not call the model as a whole; set it to "
            "false"
        )
    if cfg.trainer.precision in ("16-true", "bf16-true"):
        raise ConfigError(
            f"trainer.precision={cfg.trainer.precision} keeps the weights themselves in half precision, which loses "
            "small updates; use bf16-mixed, 16-mixed or 32-true"
        )


def check_continuation(
    checkpoint: dict[str, Any], task: Any, datamodule: Any, trainer: pl.Trainer, first_step: int
) -> None:
    """The checkpoint is of this model and this data."""
    if checkpoint["run"]["fingerprint"] != datamodule.fingerprint:
        raise CheckpointError(
            "the data is no longer what the run was trained on (other files, or another number of them); "
            "restore it, or start a new run"
        )
    check_weights(checkpoint, task)
    averages = [c.state_key for c in trainer.callbacks if isinstance(c, WeightAverage)]
    if "current_model_state" in checkpoint and not checkpoint["callbacks"].keys() & averages:
        raise ConfigError("the run averages its weights; a resumed run keeps its callbacks.ema or callbacks.swa")
    saved = [group.get("name") for group in checkpoint["optimizer_states"][0]["param_groups"]]
    if saved != [group["name"] for group in task.groups]:
        raise ConfigError(
            "the parameter groups are no longer the run's; a resumed run keeps optimizer.layer_decay, the multipliers, "
            "trained, unfreeze_step and task.lr_grid"
        )
    if task.num_steps < first_step:
        raise ConfigError(f"the run has done {first_step} steps already, and is now to end at {task.num_steps}")


def check_weights(checkpoint: dict[str, Any], task: Module) -> None:
    """Raise CheckpointError unless the checkpoint's weights are those of this model."""
    saved = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
    own = {name: tuple(value.shape) for name, value in task.state_dict().items()}
    odd = sorted(name for name in saved.keys() | own.keys() if saved.get(name) != own.get(name))
    if odd:
        name = odd[0]
        raise CheckpointError(
            f"the checkpoint belongs to another model: {name} is {saved.get(name, 'missing')} in it and "
            f"{own.get(name, 'missing')} in the model of the config ({len(odd)} tensors differ)"
        )


# -- the run itself


def run_record(
    cfg: DictConfig, job: Job, datamodule: Any, batch_size: int, run_id: str, checkpoint: dict[str, Any]
) -> dict[str, Any]:
    """What rebuilds the run from a checkpoint, in plain types."""
    return {
        "config": {**portable(cfg), "resume": None},
        "choices": checkpoint.get("run", {}).get("choices") or dict(job.choices),
        "class_names": list(datamodule.class_names),
        "device_batch_size": batch_size,
        "fingerprint": datamodule.fingerprint,
        "versions": versions(),
        "wandb_id": run_id,
    }


def fit_and_test(
    task: Any, datamodule: Any, trainer: pl.Trainer, ckpt_path: str | None, first_step: int
) -> dict[str, Any]:
    """Fit, validate the last step if nobody has, then test the best model."""
    started = time.perf_counter()
    trainer.fit(task, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True)
    best = next((c for c in trainer.callbacks if isinstance(c, BestModel)), None)
    steps = trainer.global_step - first_step
    if best is not None and best.validated_step != trainer.global_step:
        trainer.validate(task, datamodule=datamodule, verbose=False)
    validated = {name: float(value) for name, value in trainer.callback_metrics.items()}
    seconds = time.perf_counter() - started
    if best is not None and best.score is not None:
        task.load_state_dict(file.read(best.path(trainer))["state_dict"])
    trainer.test(task, datamodule=datamodule, verbose=False)
    log = next((c for c in trainer.callbacks if isinstance(c, StepLog)), None)
    return {
        "score": best.score if best is not None else None,
        "best_step": best.step if best is not None else trainer.global_step,
        "steps": trainer.global_step,
        "steps_of_this_start": steps,
        "test": {name: float(value) for name, value in trainer.callback_metrics.items()},
        "last": validated,
        "seconds": seconds,
        "images_per_second": log.mean_images_per_second if log is not None else None,
        "skipped": {split: count for split in datamodule.skipped if (count := task.count_skipped(split))},
        "partial": partial_use(trainer),
    }


def partial_use(trainer: pl.Trainer) -> list[str]:
    """The settings by which this trainer leaves samples out on purpose."""
    if trainer.fast_dev_run:
        return ["fast_dev_run"]
    limits = [f"limit_{split}_batches" for split in ("train", "val", "test")]
    return [limit for limit in limits if leaves_out(getattr(trainer, limit))]


@rank_zero_only
def finish(cfg: DictConfig, folder: Path, result: dict[str, Any], task: Task) -> None:
    """Write result.json, print the result and what to do with it."""
    report.write_json(folder / "result.json", {"monitor": cfg.monitor, **result})
    metrics = dict(result["test"])
    if result["score"] is not None:
        metrics = {f"best {cfg.monitor}": result["score"], **metrics}
    facts = {
        "time": f"{result['seconds']:.0f} s for {result['steps_of_this_start']:,} steps, "
        f"best at step {result['best_step']:,}"
    }
    if result["images_per_second"]:
        facts["speed"] = f"{result['images_per_second']:,.0f} images/s in training"
    if result["skipped"]:
        facts["skipped"] = ", ".join(f"{n} unreadable images in {split}" for split, n in result["skipped"].items())
    if result["partial"]:
        facts["partial"] = f"not every sample was used: {', '.join(result['partial'])}"
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    commands = {
        "folder": str(shown),
        **({"pictures": str(shown / "pictures")} if (folder / "pictures").is_dir() else {}),
        "evaluate": f"python src/evaluate.py run={shown}",
        **(
            {"predict": f"python src/predict.py run={shown} images=<file, folder or glob>"}
            if isinstance(task, Supervised)
            else {"fine-tune": f"python src/train.py model=<the encoder's> model.pretrained={shown}"}
        ),
        "go on": f"python src/train.py resume={shown} {twice_as_long(cfg.trainer)}",
    }
    report.print_result(metrics, facts, commands)
