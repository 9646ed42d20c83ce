"""Training: from the composed config to a tested model."""

import secrets
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.atomic_files import write_whole
from vitlab.callbacks import BestModel, ChecksRun, StepLog
from vitlab.checkpoints import file
from vitlab.checkpoints.run_folder import check_unused, run_folder
from vitlab.checkpoints.run_lock import leave, take
from vitlab.config.build import build, plain
from vitlab.config.job import Job, other_rank
from vitlab.config.redaction import Redaction, check_kept
from vitlab.config.references import literal
from vitlab.config.resume import resumed_config
from vitlab.config.stored_config import portable
from vitlab.distributed.launcher import need_no_others
from vitlab.errors import ConfigError, DistributedError
from vitlab.loggers import WeightsAndBiases
from vitlab.out_of_memory import refusing
from vitlab.run import console
from vitlab.run.checks import check_agreement, check_task, check_values
from vitlab.run.continuation import check_continuation
from vitlab.run.fitting_batch import too_many
from vitlab.run.model import build_model, compile_model, load_pretrained, recompute_activations, try_pixels
from vitlab.run.overlap import print_overlap
from vitlab.run.parts import build_datamodule, build_loggers, build_task, planned_steps
from vitlab.run.provenance import record_start, versions
from vitlab.run.saved_run import newest_state, saved_config
from vitlab.run.teacher import build_teacher
from vitlab.run.trainer import build_trainer, set_accumulation
from vitlab.tasks import Task
from vitlab.tasks.supervised import Supervised
from vitlab.tasks.task import leaves_out


def train(cfg: DictConfig) -> float | None:
    """Train, keep the best model, test it; returns the best value of the monitored metric.

    Everything a user can get wrong is checked before the first batch and before a W&B run exists.
    """
    job = Job.current()
    if cfg.resume is not None and job.sweep is not None:
        raise ConfigError("resume= goes on with one run; give it without -m")
    folder = job.folder if cfg.resume is None else run_folder(cfg.resume).absolute()
    if other_rank():
        return train_in(folder, cfg, job)
    if cfg.resume is None:
        check_unused(folder)
    take(folder, break_lock=cfg.break_lock)
    try:
        return train_in(folder, cfg, job)
    finally:
        leave(folder)


def train_in(folder: Path, cfg: DictConfig, job: Job) -> float | None:
    """Train in a folder that no other process writes to."""
    path: Path | None = None
    checkpoint: dict[str, Any] = {}
    if cfg.resume is not None:
        path, checkpoint = newest_state(cfg.resume)
        saved = saved_config(checkpoint, str(path))
        cfg = resumed_config(saved, checkpoint["run"]["choices"], cfg, job.overrides)
    first_step = int(checkpoint.get("global_step", 0))

    check_values(cfg)
    check_kept(plain(cfg))
    check_agreement(cfg)
    kept = Redaction(cfg)
    run_id = checkpoint.get("run", {}).get("wandb_id") or secrets.token_hex(4)
    loggers = build_loggers(cfg, folder, job, run_id, first_step, kept)
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
    pl.seed_everything(cfg.seed, workers=False, verbose=False)  # a cache that was built has drawn numbers
    model = build_model(cfg.model)
    if cfg.data.patch_size is None:
        try_pixels(model, cfg.data.in_chans, cfg.data.image_size, cfg.data.num_classes)
    task = build_task(cfg, model, build_teacher(cfg))
    datamodule.num_steps = planned_steps(trainer, datamodule)
    task.plan(datamodule.num_steps, datamodule)
    check_task(cfg, task, datamodule)
    for callback in callbacks:
        if isinstance(callback, ChecksRun):
            callback.check_run(trainer, task, datamodule)
    if cfg.activation_checkpointing:
        recompute_activations(model)
    task.record = kept(run_record(cfg, job, datamodule, batch_size, run_id, checkpoint))
    if path is not None:
        check_continuation(checkpoint, task, datamodule, trainer, first_step)
        checkpoint.clear()  # the fit reads it again, and it would stay in memory beside the weights

    console.print_start(cfg, datamodule, task, trainer)
    print_overlap(datamodule.splits)
    transfer = load_pretrained(model, cfg.model) if path is None else None
    if trainer.is_global_zero:
        resolved = OmegaConf.create(literal(kept(plain(cfg))))
        write_whole(folder / "config.yaml", OmegaConf.to_yaml(resolved).encode("utf-8"))
        record_start(folder, kept(job.overrides), first_step)
        if transfer is not None:
            transfer.save(folder / "pretrained.csv")
            transfer.show()
    if cfg.compile:
        compile_model(model, datamodule.num_image_sizes)
    exit_code = 1
    try:
        with refusing(lambda: too_many(datamodule, trainer, task)):
            result = fit_and_test(task, datamodule, trainer, path, first_step)
        exit_code = 0
    finally:
        need_no_others(trainer)
        for logger in loggers:
            if isinstance(logger, WeightsAndBiases):
                logger.close(exit_code)
    finish(cfg, folder, result, task)
    return result["score"]


# -- the run itself


def run_record(
    cfg: DictConfig, job: Job, datamodule: Any, batch_size: int, run_id: str, checkpoint: dict[str, Any]
) -> dict[str, Any]:
    """What rebuilds the run from a checkpoint, in plain types."""
    return {
        "config": {**portable(cfg), "resume": None, "break_lock": False},
        "choices": checkpoint.get("run", {}).get("choices") or dict(job.choices),
        "class_names": list(datamodule.class_names),
        "device_batch_size": batch_size,
        "fingerprint": datamodule.fingerprint,
        "versions": versions(),
        "wandb_id": run_id,
    }


def fit_and_test(
    task: Any, datamodule: Any, trainer: pl.Trainer, ckpt_path: Path | None, first_step: int
) -> dict[str, Any]:
    """Fit, validate the last step if this start has not, then test the best model."""
    started = time.perf_counter()
    trainer.fit(task, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True)
    best = next((c for c in trainer.callbacks if isinstance(c, BestModel)), None)
    steps = trainer.global_step - first_step
    if best is not None and (best.validated_step != trainer.global_step or not trainer.callback_metrics):
        trainer.validate(task, datamodule=datamodule, verbose=False)
    validated = {name: float(value) for name, value in trainer.callback_metrics.items()}
    seconds = time.perf_counter() - started
    if best is not None and best.score is not None:
        path = trainer.strategy.broadcast(str(best.path(trainer)))  # others that srun started have folders of their own
        task.load_state_dict(file.read(Path(path))["state_dict"])
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
    console.write_json(folder / "result.json", {"monitor": cfg.monitor, **result})
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
    console.print_result(metrics, facts, commands)


def twice_as_long(trainer: DictConfig) -> str:
    """The override by which a run ends after as many steps again."""
    if trainer.max_steps >= 0:
        return f"trainer.max_epochs=-1 trainer.max_steps={2 * trainer.max_steps}"
    return f"trainer.max_epochs={2 * trainer.max_epochs}"
