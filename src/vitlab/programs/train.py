"""Train: from the composed config to a tested model."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.callbacks import BestModel, Calibration, ChecksRun, EvaluationReport
from vitlab.callbacks.best_model import find_latest_state
from vitlab.callbacks.progress import find_step_log
from vitlab.checkpoints.run_folder import has_state, write_marks
from vitlab.config.arguments import format_override
from vitlab.config.identity import AUTO
from vitlab.config.job import Job
from vitlab.config.nodes import make_node, resolve_config
from vitlab.data import DataModule, ImageDataModule
from vitlab.distributed.environment import is_other_rank
from vitlab.distributed.fully_sharded import FullySharded
from vitlab.errors import DataError
from vitlab.invocation import format_command, shorten_path
from vitlab.monitors import format_metric
from vitlab.out_of_memory import refuse_out_of_memory
from vitlab.reports.curves import draw_curves
from vitlab.reports.run import RESULT
from vitlab.run.building.autoconfig import ResolvedRun, find_values
from vitlab.run.building.model import build_model, compile_model, load_pretrained, recompute_activations, try_pixels
from vitlab.run.building.parts import Parts, build_callbacks, build_task
from vitlab.run.building.run_loggers import build_loggers, close_loggers, try_callbacks_and_loggers, uploads
from vitlab.run.building.trainer import build_trainer, find_devices, watch_ranks
from vitlab.run.checks.batch_advice import advise_batch_size
from vitlab.run.checks.continuation import check_continuation
from vitlab.run.checks.preconditions import check_disk, check_task
from vitlab.run.inference.teacher import build_teacher
from vitlab.run.printing import console
from vitlab.run.printing.hints import print_hints, print_overlap
from vitlab.run.printing.log import write_log
from vitlab.run.printing.next_steps import describe_complete, next_steps
from vitlab.run.storage.folder_guide import write_guide
from vitlab.run.storage.provenance import list_own_packages, record_config, record_start
from vitlab.run.storage.result import Result, partial_use
from vitlab.run.storage.start import Start, claim_folder, start_or_resume
from vitlab.sweeps.attempt import SUPERVISED
from vitlab.sweeps.results import record_resumed_job

LEARNED = ("train/loss", "train/acc1")  # what debug=overfit is about


def train(cfg: DictConfig) -> Path:
    """Train, keep the best model, test it; return the run's folder.

    Everything a user can get wrong is checked before the first batch, before a W&B run exists, and before anything but
    the lock is in the run's folder.
    """
    job = Job.current()
    with claim_folder(cfg, job) as place:
        if place.ended is not None and cfg.resume == AUTO:
            print(f"{shorten_path(Path(place.folder))} is complete; there is nothing to do")
            return Path(place.folder)
        start = start_or_resume(cfg, job, place)
        try_callbacks_and_loggers(start)
        devices = find_devices(start.cfg.trainer, start.folder)
        found = find_values(start.cfg, devices)
        start = replace(start, cfg=found.cfg)  # final and read-only from here on
        parts = build(start, found.datamodule)
        check(start, parts)
        if start.is_complete(parts.task.num_steps):
            if not is_other_rank():
                print(describe_complete(start))
            return start.folder
        transfer = load_weights(start, parts)
        with write_log(start, parts.trainer.is_global_zero):
            begin(start, found, parts, transfer)
            with supervise(start, parts):
                fitted = fit(start, parts)
                result = test(parts, fitted)
            finish(start, parts, result)
    if start.sweep and SUPERVISED not in os.environ and parts.trainer.is_global_zero:  # resumed by hand
        record_resumed_job(start.folder)
    return start.folder


def build(start: Start, datamodule: DataModule, device: str = "cpu") -> Parts:
    """Build the parts of a run around its data, with random weights on that device. On "meta" weights have shapes, and
    no values or memory. Raises VitlabError for what cannot be built."""
    cfg = start.cfg
    loggers = build_loggers(start)
    callbacks = build_callbacks(cfg) + [logger for logger in loggers if isinstance(logger, pl.Callback)]
    trainer = build_trainer(cfg.trainer, start.folder, loggers, callbacks, to_run=device != "meta")
    device_batch_size = datamodule.attach(trainer)
    pl.seed_everything(cfg.seed, workers=False, verbose=False)  # opening the data may have drawn numbers
    with torch.device(device):
        model = build_model(cfg.model)
        if "patch_size" in cfg.data and cfg.data.patch_size is None:
            try_pixels(model, cfg.data.in_chans, cfg.data.image_size, cfg.data.num_classes)
    teacher = build_teacher(cfg) if "teacher" in cfg else None
    task = build_task(cfg, model, teacher, datamodule.vocabulary)
    task.plan(datamodule.plan(), datamodule, start.record(datamodule, device_batch_size, trainer.world_size))
    if cfg.activation_checkpointing:
        recompute_activations(model)
    return Parts(trainer, datamodule, task)


def check(start: Start, parts: Parts) -> None:
    """Raise VitlabError for parts that do not fit each other, or do not fit the checkpoint the run resumes from."""
    trainer, datamodule, task = parts.trainer, parts.datamodule, parts.task
    check_task(start.cfg, task, datamodule, trainer)
    check_disk(task, trainer)
    for callback in trainer.callbacks:
        if isinstance(callback, ChecksRun):
            callback.check_run(trainer, task, datamodule)
    if start.state is not None:
        check_continuation(start.checkpoint, task, datamodule, trainer, start.first_step)
        start.checkpoint.clear()  # the fit reads it again, and it would stay in memory beside the weights


def load_weights(start: Start, parts: Parts) -> Any:
    """Load the weights that a new run starts from; return what became of each tensor, None for random weights."""
    if start.state is not None:
        return None
    return load_pretrained(parts.task.model, start.cfg.model, vocabularies=parts.datamodule.vocabularies())


def begin(start: Start, found: ResolvedRun, parts: Parts, transfer: Any) -> None:
    """Print what is about to run, and write config.yaml and provenance.json."""
    cfg, trainer = start.cfg, parts.trainer
    console.print_start(found, parts)
    if isinstance(parts.datamodule, ImageDataModule):
        print_overlap(parts.datamodule.splits)
        if start.state is None:
            print_hints(cfg, parts.datamodule)
    if trainer.is_global_zero:
        resolved = make_node(start.kept(resolve_config(cfg)))
        record_config(start.folder, start.identity, OmegaConf.to_yaml(resolved).encode("utf-8"))
        record_start(start.folder, start.words, start.first_step, parts.task.num_steps, list_own_packages(cfg))
        if start.mark is not None:
            write_marks(start.folder, auto=start.mark)
        if transfer is not None:
            transfer.save(start.folder / "pretrained.csv")
            transfer.show()
    speed_up(cfg, parts)


def speed_up(cfg: DictConfig, parts: Parts) -> None:
    """Multiply in TensorFloat-32 or float8, and compile, as the config says."""
    if cfg.get("tf32"):  # a run from before this key has none
        torch.set_float32_matmul_precision("high")
    if cfg.float8:
        from vitlab.run.hardware.float8 import use_float8

        use_float8(parts.task.model, cfg.float8)
    if cfg.compile:
        sharded = isinstance(parts.trainer.strategy, FullySharded)
        compile_model(parts.task.model, parts.datamodule.num_image_sizes, by_block=sharded, mode=cfg.compile)


@contextmanager
def supervise(start: Start, parts: Parts) -> Iterator[None]:
    """While the run computes, watch its other processes, and say which batch fits if memory runs out, and how to go on
    without a file that cannot be read; then close its loggers, however it ended."""
    advice = refuse_out_of_memory(lambda: advise_batch_size(parts.datamodule, parts.trainer, parts.task))
    with watch_ranks(parts.trainer), close_loggers(parts.trainer), advice, suggest_skip(start):
        yield


class FitResult(NamedTuple):
    """The steps and seconds of this start, and the metrics of the last validation."""

    steps: int
    seconds: float
    last: dict[str, float]


@contextmanager
def suggest_skip(start: Start) -> Iterator[None]:
    """Where a file cannot be read, raise DataError with the command that continues without it: a run whose files have
    changed cannot be resumed."""
    try:
        yield
    except DataError as error:
        found, _, advice = str(error).partition("; ")
        if "on_bad_image=skip" not in advice or not has_state(start.folder):
            raise
        run = format_override("resume", str(shorten_path(start.folder)))
        command = f"{format_command('train')} {run} data.loading.on_bad_image=skip"
        raise DataError(f"{found}; repair the file, or continue without it: {command}") from error


def fit(start: Start, parts: Parts) -> FitResult:
    """Train to the end, and validate the last step if this start has not."""
    trainer, task, datamodule = parts.trainer, parts.task, parts.datamodule
    started = time.perf_counter()
    trainer.fit(task, datamodule=datamodule, ckpt_path=start.state, weights_only=True)
    best, steps = find_best(trainer), trainer.global_step - start.first_step
    if best is not None and (best.validated_step != trainer.global_step or not trainer.callback_metrics):
        trainer.validate(task, datamodule=datamodule, verbose=False)
    return FitResult(steps, time.perf_counter() - started, get_metrics(trainer))


def train_until(start: Start, parts: Parts, callback: pl.Callback, end: type[BaseException]) -> None:
    """Train as the run did, and keep no result, until the callback raises `end`."""
    parts.trainer.callbacks.append(callback)
    check(start, parts)
    load_weights(start, parts)
    speed_up(start.cfg, parts)
    with supervise(start, parts), suppress(end):
        parts.trainer.fit(parts.task, datamodule=parts.datamodule, ckpt_path=start.state, weights_only=True)


def test(parts: Parts, fitted: FitResult) -> Result:
    """Calibrate the best model on validation, and test it."""
    trainer, task, datamodule = parts.trainer, parts.task, parts.datamodule
    best, log = find_best(trainer), find_step_log(trainer)
    if best is not None and best.score is not None:
        trainer.strategy.load_model_state_dict({"state_dict": best.read_weights(trainer)})
    trainer.test(task, datamodule=datamodule, verbose=False)
    calibration = next((c.found for c in trainer.callbacks if isinstance(c, Calibration)), None)
    report = next((c for c in trainer.callbacks if isinstance(c, EvaluationReport)), None)
    if calibration is not None and report is not None:
        calibration = calibration | {"test_none_of_these": report.share_of_none}
    return Result(
        score=best.score if best is not None else None,
        best_step=best.step if best is not None else trainer.global_step,
        steps=trainer.global_step,
        steps_of_this_start=fitted.steps,
        test=get_metrics(trainer),
        last=fitted.last,
        calibration=calibration,
        seconds=fitted.seconds + (log.before if log is not None else 0.0),
        images_per_second=log.mean_images_per_second if log is not None and fitted.steps else None,
        skipped={split: count for split in datamodule.skipped if (count := task.count_skipped(split))},
        partial=partial_use(trainer),
    )


@rank_zero_only
def finish(start: Start, parts: Parts, result: Result) -> None:
    """Write result.json, print the result and what to do with it."""
    monitor = start.cfg.monitor
    console.write_json(start.folder / RESULT, {"monitor": monitor, **asdict(result)})
    if not parts.trainer.fast_dev_run:
        find_latest_state(parts.trainer).open_chain(parts.trainer).add_end(result.steps, result.score, result.test)
    if (start.folder / "pictures").is_dir():
        draw_curves(start.folder, monitor)
    best = {f"best {monitor}": result.score} if result.score is not None else {}
    then = next_steps(start, parts)
    commands = [then[key] for key in ("evaluate", "predict", "fine-tune", "report", "go on") if key in then]
    write_guide(start.folder, start.kept.text(str(start.cfg.name)), start.kept(commands))
    then |= uploads(parts.trainer.loggers)
    facts = result.facts(parts.datamodule.things)
    if start.choices.get("debug") == "overfit" and (log := find_step_log(parts.trainer)) is not None:
        learned = [f"{name} {format_metric(name, log.latest[name])}" for name in LEARNED if name in log.latest]
        facts["learned"] = ", ".join(learned)
    console.print_result(best | result.test, facts, then)


def find_best(trainer: pl.Trainer) -> BestModel | None:
    return next((c for c in trainer.callbacks if isinstance(c, BestModel)), None)


def get_metrics(trainer: pl.Trainer) -> dict[str, float]:
    return {name: float(value) for name, value in trainer.callback_metrics.items()}
