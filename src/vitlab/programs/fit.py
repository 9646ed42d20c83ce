"""Fit a classifier to a folder of images within a number of minutes: survey, short trials, one final run, a bundle."""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from vitlab.checkpoints.run_folder import RUNS, has_state
from vitlab.checkpoints.run_lock import leave, take
from vitlab.commands import program
from vitlab.config.arguments import format_override
from vitlab.config.in_process import call_within, format_overrides
from vitlab.config.job import Job
from vitlab.config.values import format_value
from vitlab.errors import ConfigError, DataError, VitlabError
from vitlab.invocation import format_command, shorten_path
from vitlab.trials.budget import Budget
from vitlab.trials.candidates import Candidate, Images, list_candidates
from vitlab.trials.ledger import FILE, Ledger, read_ledger
from vitlab.trials.lines import say
from vitlab.trials.outcome import Outcome, choose
from vitlab.trials.plan import PROBE, Sizes, plan_final
from vitlab.trials.rounds import Rounds

LEAST_MINUTES = {False: 1.0, True: 2.0}  # without and with a bundle
SURVEYED = 0.04  # share of the time in which the survey reads the images of each split
FEW_VALIDATED = 1_000  # validation images, with fewer of which the loss chooses the best model of a run
LATE = 1.05  # times the time left, from which an expected end is said to be late
STARTED = 2.5  # seconds on two cores of an AMD EPYC, that a trial takes beside its training
REPORT = 4.0, 0.0004, math.inf  # seconds there of pictures and report: at least, for each test image, at most so many
BUNDLE = 15.0, 0.02, 500
LEAST_OF_A_CLASS, LEAST_VALIDATED = 10, 50  # training and validation images, with fewer of which a note says so
DATA_GROUPS = ("data", "seed", "trust")  # of the user's words, those that every run gets
FOUND = {  # values that are found once, for all runs
    "in_chans": "data.in_chans",
    "mode": "data.images.mode",
    "mean": "data.mean",
    "std": "data.std",
    "flip_rate": "crop.train.flip_rate",
}
WEIGHTS_HELP = "published ones often do better: model=vit_s16 model.pretrained=published, or the name of a file"
ANY = ["crop=fitting", "model=vit_xs8"]  # with which data is opened: fitting crops leave flips to be found
LOOKED_AT = 64  # images whose sizes, and time to read, are looked at


def fit(cfg: DictConfig) -> Path:
    """Train the best classifier that is found within cfg.minutes on the images of cfg.data; return the run's folder.
    Raises VitlabError for what cannot be done, before the time is spent."""
    budget = Budget(cfg.minutes)
    check_request(cfg)
    with open_ledger(cfg, budget) as ledger:
        if "end" not in ledger:
            words = base_words()
            data = ledger.find("data", partial(examine, cfg, words, ledger))
            words += data["words"]
            candidates = choose_candidates(cfg, data)
            trials = ledger.find("trials", partial(try_candidates, candidates, words, data, ledger))
            plan = ledger.find("plan", partial(plan_run, trials, data, budget, cfg.export))
            chosen = next(one for one in candidates if one.name == plan["candidate"])
            run = train_final(chosen, words, plan, data, ledger.folder)
            note_changes(words, data, ledger)
            report = write_report(run, ledger.folder)  # first, since a bundle can be refused
            bundle = write_bundle(run, ledger.folder) if cfg.export else None
            written = {"bundle": bundle and str(bundle), "report": str(report)}
            ledger.keep("end", {"run": str(run), **written, "seconds": budget.spent})
        tell(ledger, cfg)
        return Path(ledger["end"]["run"])


# -- what is asked


def check_request(cfg: DictConfig) -> None:
    """Raise ConfigError for too little time, and for a bundle that cannot be written here."""
    if cfg.minutes < LEAST_MINUTES[cfg.export]:
        raise ConfigError(
            f"minutes={cfg.minutes:g} is too short to survey, try, train and test; give at least "
            f"minutes={LEAST_MINUTES[cfg.export]:g}"
        )
    if cfg.export:
        from vitlab.bundles.formats import check_libraries

        try:
            check_libraries()
        except ConfigError as error:
            raise ConfigError(f"{error}; or add export=false") from error


def base_words() -> list[str]:
    """Give the words of this command that every run gets, and those that all runs of a fit share."""
    own = [one for one in Job.current().parse_overrides() if one.key_or_group.partition(".")[0] in DATA_GROUPS]
    given = [str(one.input_line) for one in own]
    chosen = [] if any(one.key_or_group == "data" for one in own) else ["data=folder"]
    return [*chosen, *given, "logger=none", "trainer.devices=1", "data.loading.on_bad_image=skip"]


def weight_words() -> list[str]:
    """Give the words of this command that choose a model with weights; [] without weights."""
    own = [one for one in Job.current().parse_overrides() if one.key_or_group.partition(".")[0] == "model"]
    pretrained = any(one.key_or_group == "model.pretrained" for one in own)
    return [str(one.input_line) for one in own] if pretrained else []


@contextmanager
def open_ledger(cfg: DictConfig, budget: Budget) -> Iterator[Ledger]:
    """Lock the folder of the fit, and read what an earlier start with the same arguments has found. Raises ConfigError
    for a folder of something else."""
    arguments = {"words": sorted(map(str, Job.current().overrides)), "minutes": cfg.minutes}
    arguments["words"] = [word for word in arguments["words"] if not word.startswith(("overwrite=", "output="))]
    folder = Path(cfg.output) if cfg.output else RUNS / "fit" / name_folder(cfg, arguments)
    before = read_ledger(folder)
    if cfg.overwrite and before:
        shutil.rmtree(folder)
    elif before and before["arguments"] != arguments:
        raise ConfigError(
            f"output={folder} holds a fit with other arguments; name another folder, or add overwrite=true"
        )
    elif not before and folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir()):
        raise ConfigError(f"output={folder} is not empty and holds no fit; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    take(folder, break_lock=False)
    try:
        ledger = Ledger(folder, budget)
        ledger.content |= {"arguments": arguments}
        if before and "end" not in ledger:
            say("continues", f"{shorten_path(folder)}, where {ledger['seconds']:.0f} s were spent before")
        yield ledger
    finally:
        leave(folder)
        if not (folder / FILE).exists():  # what was asked is refused
            shutil.rmtree(folder)


def name_folder(cfg: DictConfig, arguments: dict[str, Any]) -> str:
    """Name a folder by the data and all arguments, so that the same command finds it again."""
    root = Path(str(cfg.data.source.get("root", Job.current().choices["data"]))).absolute().name
    digest = hashlib.blake2b(json.dumps(arguments, sort_keys=True).encode(), digest_size=4).hexdigest()
    return f"{''.join(c if c.isalnum() or c in '._+-' else '_' for c in root)}_{digest}"


# -- what there is


def examine(cfg: DictConfig, words: list[str], ledger: Ledger) -> dict[str, Any]:
    """Open the data, survey it, and return what trials and plan need to know. Raises VitlabError for data that no
    classifier can be trained on."""
    seconds = max(SURVEYED * ledger.budget.seconds, 2.0)
    facts: dict[str, Any] = call_within("train", partial(look, seconds=seconds), [*words, *ANY])
    choose_candidates(cfg, facts)  # which refuses unknown names
    own = [word for word in words if not word.startswith(("logger=", "trainer.", "data.loading."))]
    output = format_overrides({"output": ledger.folder / "survey"})
    survey = [*own, "model=vit_xs8", f"seconds={seconds:.1f}", "overwrite=true", *output]
    facts["notes"] += list_notes(call_within("survey", partial(program, "survey"), survey))
    for note in facts["notes"]:
        say("note", note)
    return facts


def look(cfg: DictConfig, seconds: float) -> dict[str, Any]:
    """Open the data as a run would, and return values, sizes, the time to read an image, and notes; images are compared
    for so many seconds. Raises DataError for images that are no two classes."""
    from vitlab.data.duplicates import examine_images
    from vitlab.data.glance import glance
    from vitlab.run.building.autoconfig import find_values
    from vitlab.trials.near_duplicates import count_near_duplicates

    found = find_values(cfg)
    datamodule: Any = found.datamodule
    check_classes(datamodule)
    splits = datamodule.splits
    begun = time.perf_counter()
    places = range(min(len(splits["train"]), LOOKED_AT))
    sizes = examine_images(splits["train"], datamodule.images.eval_crop, places).sizes
    reading = (time.perf_counter() - begun) / len(places)
    near = count_near_duplicates(splits["train"], splits["test"], seconds)
    compared = f"{near.compared:,} test images with {near.known:,} training images"
    say("compared", f"{compared}: {near.found:,} are nearly the same")
    counts, notes = datamodule.class_counts(), []
    if near.found:
        share = f"{near.found:,} of {near.compared:,} test images"
        notes.append(f"{share} are nearly the same as a training image, so that the test accuracy is too high")
    if counts.min() < LEAST_OF_A_CLASS:
        smallest = datamodule.class_names[int(counts.argmin())]
        notes.append(f"{smallest} has only {counts.min()} training images; {LEAST_OF_A_CLASS} or more are better")
    if len(splits["val"]) < LEAST_VALIDATED:
        notes.append(f"only {len(splits['val'])} images are for validation: the choice among recipes is uncertain")
    values = {key: value for key, value in found.values.items() if key in FOUND}
    return {
        "words": [f"{FOUND[key]}={format_value(value)}" for key, value in values.items()],
        "images": {split: len(splits[split]) for split in ("train", "val", "test")},
        "side": glance(splits["train"].pool, splits["train"].indices).side,
        "same_size": bool((sizes == sizes[0, 0]).all()),
        "channels": datamodule.in_chans,
        "reading": reading,
        "fingerprint": datamodule.fingerprint,
        "notes": notes,
    }


def check_classes(datamodule: Any) -> None:
    """Raise ConfigError for other data than images with one class each, and DataError for a single class."""
    from vitlab.data import ImageDataModule
    from vitlab.data.targets import OneClass

    if not isinstance(datamodule, ImageDataModule) or not isinstance(datamodule.targets, OneClass):
        raise ConfigError("fit needs images with one class each; give a folder with a folder for each class")
    names = datamodule.class_names
    if len(names) < 2:
        raise DataError(f"the data has one class, {names[0]}; a classifier needs at least two, each in its own folder")


def list_notes(report: dict[str, Any]) -> list[str]:
    """Say what the survey has found that a user should know of."""
    notes = []
    if bad := sum(report["unreadable"].values()):
        notes.append(f"{bad:,} images cannot be read and are left out; survey/unreadable.csv names them")
    for pair, count in report["overlap"].items():
        if count:
            notes.append(f"{count:,} images of {pair}: the accuracy on them says nothing about new images")
    train = [numbers[0] for numbers in report["classes"].values()]
    if max(train) > 10 * max(min(train), 1):
        notes.append(f"the largest class has {max(train):,} training images, and the smallest {min(train):,}")
    return notes


def get_sizes(data: dict[str, Any]) -> Sizes:
    """Get the sizes of the splits from what `examine` has found."""
    return Sizes(**data["images"], reading=data["reading"])


# -- trials


def choose_candidates(cfg: DictConfig, data: dict[str, Any]) -> list[Candidate]:
    """List the candidates for this data. Raises ConfigError for an unknown name in cfg.candidates."""
    images = Images(data["side"], data["images"]["train"], data["channels"], data["same_size"])
    every = list_candidates(images, weight_words())
    if cfg.candidates is None:
        return every
    unknown = [name for name in cfg.candidates if name not in {one.name for one in every}]
    if unknown or not cfg.candidates:
        given = unknown[0] if unknown else "[]"
        raise ConfigError(f"candidates: {given} is not one of: {', '.join(one.name for one in every)}")
    return [one for one in every if one.name in cfg.candidates]


def try_candidates(candidates: list[Candidate], words: list[str], data: dict[str, Any], ledger: Ledger) -> list[Any]:
    """Run short trials of the candidates, and longer ones of the best two; return the outcomes as plain types."""
    if not weight_words():
        say("weights", f"none: all recipes start from scratch; {WEIGHTS_HELP}")
    return [asdict(one) for one in Rounds(ledger, words, get_sizes(data), measure).run(candidates)]


def measure(cfg: DictConfig) -> tuple[float, int]:
    """Train for some seconds, and keep nothing; return the seconds of a step and its images."""
    from vitlab.programs.check import build_trainable
    from vitlab.run.building.autoconfig import find_values
    from vitlab.run.building.trainer import build_trainer, find_devices
    from vitlab.run.hardware.step_timing import measure_steps
    from vitlab.run.storage.start import RunPlace, start_or_resume

    job = Job.current()
    start = start_or_resume(cfg, job, RunPlace(str(job.folder), None))
    found = find_values(start.cfg, find_devices(start.cfg.trainer, job.folder, to_run=False))
    size = found.cfg.global_batch_size
    trainer = build_trainer(found.cfg.trainer, job.folder, False, [], to_run=False)
    task, datamodule = build_trainable(replace(start, cfg=found.cfg), found.datamodule.source, size)
    speed = measure_steps(task, datamodule, trainer, PROBE)
    return (speed.reading + speed.learning) * size + speed.updating, size


# -- the final run


def plan_run(trials: list[dict[str, Any]], data: dict[str, Any], budget: Budget, bundle: bool) -> dict[str, Any]:
    """Choose the best of the longest trials, and fix the steps of the final run."""
    outcomes = [Outcome(**one) for one in trials]
    longest: dict[str, Outcome] = {one.name: one for one in outcomes if not one.failed}
    seconds = [one for one in longest.values() if sum(other.name == one.name for other in outcomes) > 1]
    best, why = choose(seconds or list(longest.values()), data["images"]["val"])
    sizes = get_sizes(data)
    plan = plan_final(best, sizes, budget.left, estimate_reserve(best, sizes.test, bundle))
    say("chosen", why)
    say("planned", f"{plan.steps:,} steps of {best.batch_size}, in {plan.seconds:.0f} s with test and bundle")
    if plan.seconds > LATE * budget.left:
        end = (budget.spent + plan.seconds) / 60
        say("late", f"this machine is too slow for the minutes given; the end is expected after {end:.1f} minutes")
    return {"candidate": best.name, "why": why, **asdict(plan)}


def estimate_reserve(best: Outcome, num_tested: int, bundle: bool) -> float:
    """Estimate the seconds of pictures, report and bundle: more than measured where a trial starts more slowly."""
    slower = max(1.0, (best.seconds - best.fit_seconds) / STARTED)
    parts = [REPORT, BUNDLE] if bundle else [REPORT]
    return slower * sum(least + each * min(num_tested, most) for least, each, most in parts)


def train_final(
    candidate: Candidate, words: list[str], plan: dict[str, Any], data: dict[str, Any], folder: Path
) -> Path:
    """Train as planned, calibrate and test; resume where an earlier start was killed."""
    run = folder / "model"
    if run.is_dir() and not has_state(run):
        shutil.rmtree(run)  # killed before its first state
    monitor = "val/loss" if data["images"]["val"] < FEW_VALIDATED else "val/acc1"
    own = [*words, *candidate.words, "trainer.max_epochs=-1", f"trainer.max_steps={plan['steps']}"]
    own += [f"trainer.check_val_every_n_epoch={plan['validate_every']}", f"monitor={monitor}"]
    own += ["callbacks.latest_state.every_n_minutes=1", "resume=auto"]
    call_within("train", partial(program, "train"), [*own, *format_overrides({"hydra.run.dir": run.absolute()})])
    return run


def note_changes(words: list[str], data: dict[str, Any], ledger: Ledger) -> None:
    """Note where the images are no longer those that were surveyed."""

    def read(cfg: DictConfig) -> tuple[str, int]:
        from vitlab.run.building.autoconfig import find_values

        datamodule: Any = find_values(cfg).datamodule
        return datamodule.fingerprint, sum(map(len, datamodule.splits.values()))

    try:
        fingerprint, count = call_within("train", read, [*words, *ANY])
        note = f"the images have changed meanwhile: {sum(data['images'].values()):,} at the start, {count:,} at the end"
    except VitlabError as error:
        fingerprint, note = None, f"the images have changed meanwhile: {error}"
    if fingerprint != data["fingerprint"]:
        ledger.keep("data", data | {"notes": [*data["notes"], note]})


# -- what is handed over


def write_bundle(run: Path, folder: Path) -> Path:
    """Export the run's best model as a folder that needs no vitlab."""
    bundle = folder / "bundle"
    words = format_overrides({"run": run, "output": bundle, "format": "bundle", "overwrite": True})
    call_within("export", partial(program, "export"), words)
    return bundle


def write_report(run: Path, folder: Path) -> Path:
    """Write a page about the run."""
    page = folder / "report.html"
    words = format_overrides({"runs": [str(run)], "output": page, "overwrite": True})
    call_within("report", partial(program, "report"), words)
    return page


def tell(ledger: Ledger, cfg: DictConfig) -> None:
    """Print the result, the time, and what to do with the classifier."""
    from vitlab.reports.intervals import wilson_interval
    from vitlab.reports.run import read_result

    end, run = ledger["end"], Path(ledger["end"]["run"])
    result = read_result(run) or {}
    count, accuracy = ledger["data"]["images"]["test"], result["test"]["test/acc1"]
    low, high = wilson_interval(accuracy * count, count)
    say("chosen", ledger["plan"]["why"])
    for note in ledger["data"]["notes"]:
        say("note", note)
    say("test", f"{accuracy:.2%} of {count:,} images, tested once (95 % interval: {low:.2%} to {high:.2%})")
    say("time", f"{end['seconds'] / 60:.2f} of {cfg.minutes:g} minutes")
    say("run", str(shorten_path(run)))
    for name in ("bundle", "report"):
        if end[name]:
            say(name, str(shorten_path(Path(end[name]))))
    if end["bundle"]:
        say("serve", f"{format_command('serve')} {format_override('bundle', end['bundle'])}")
    say("predict", f"{format_command('predict')} {format_override('run', str(run))} images=<file, folder or glob>")
