"""Verify: compute stretches of a run again in fresh processes, compare every tensor, and say what was altered."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import yaml
from omegaconf import DictConfig
from pytorch_lightning.callbacks import Callback

from vitlab.atomic_files import write_whole
from vitlab.callbacks.best_model import find_latest_state
from vitlab.checkpoints import file
from vitlab.checkpoints.chain import Line, describe_start, read_chain
from vitlab.checkpoints.run_folder import CONFIG, run_folder
from vitlab.config.nodes import resolve_config
from vitlab.config.stored_config import read_saved_config
from vitlab.config.trust import trust_words
from vitlab.distributed.environment import is_other_rank
from vitlab.errors import AlteredError, CheckpointError, ConfigError, VitlabError
from vitlab.invocation import PACKAGE
from vitlab.machine import describe_arithmetic
from vitlab.programs import train
from vitlab.reports.finished import flatten_values
from vitlab.reports.run import read_result
from vitlab.run.building.autoconfig import find_values
from vitlab.run.building.trainer import find_devices
from vitlab.run.hardware.block_timing import set_products
from vitlab.run.storage.output import output_folder
from vitlab.run.storage.start import start_elsewhere
from vitlab.verification.pinning import describe_machine_differences, pin
from vitlab.verification.recorded import RecordedRun, compare_rows, find_changes, read_recorded
from vitlab.verification.stretches import (
    Stretch,
    choose_stretches,
    compare_states,
    compute_miss,
    list_stretches,
)

SAME = 1e-5  # of a test metric, relative: processes share out the sums of a test differently
ALIKE = 0.02  # of a test metric on a machine of another kind, and the least tolerance of weights there, relative
TIMES = 2  # what another number of threads changes is tolerated of another machine


def verify(cfg: DictConfig) -> str | Path:
    """Compute parts of a run again, and print and return the sentence on what was found. Raises AlteredError, with all
    that was found, for a run that is not what it recorded: before anything is computed, if its files tell. Raises
    CheckpointError for a run that cannot be computed."""
    if (cfg.run is None) == (cfg.chain is None):
        raise ConfigError("nothing to verify, or two things; give one of run=RUN or chain=FILE")
    if cfg.chain is not None:
        return verify_chain(cfg)
    run = read_recorded(run_folder(cfg.run).absolute())
    if cfg.stretch is not None:
        return recompute(cfg, run)
    if changes := find_changes(run) + compare_config(run):
        raise build_refusal(cfg.run, changes)
    stretches = list_stretches(run)
    chosen = choose_stretches(stretches, cfg.segments, cfg.seed)
    print(f"{len(run.saved)} states of {run.folder} are in its chain, {len(stretches)} stretches can be computed again")
    with tempfile.TemporaryDirectory(prefix="vitlab_verify_") as work:
        found = [check_stretch(cfg, run, stretch, Path(work)) for stretch in chosen]
        tested = check_test(cfg, run, Path(work))
    if altered := [clause for one in (*found, tested) for clause in one.altered]:
        raise build_refusal(cfg.run, altered)
    sentence = describe(len(stretches), found, tested)
    print(sentence)
    return sentence


def build_refusal(run: str, altered: list[str]) -> AlteredError:
    return AlteredError(f"{run} is not what it recorded: {'; '.join(dict.fromkeys(altered))}")


class Found(NamedTuple):
    """What computing a part again has found: clauses on what was altered, in what the machine differs from the recorded
    one, the distance of the weights, and how much of it is tolerated; `said`: a sentence on it."""

    altered: list[str]
    machine: str = ""
    distance: float = 0.0
    tolerance: float = 0.0
    said: str = ""


# -- what the run says of itself


def compare_config(run: RecordedRun) -> list[str]:
    """Name the keys of config.yaml whose values are not those that the newest state was trained with."""
    path, newest = run.folder / CONFIG, list(run.states.values())[-1:]
    if not path.is_file() or not newest:
        return [f"{CONFIG} is missing"] * (not path.is_file())
    try:
        now = flatten_values(yaml.safe_load(path.read_bytes()))
        then = flatten_values(resolve_config(read_saved_config(file.read(newest[0]), str(newest[0]))))
    except (yaml.YAMLError, CheckpointError) as error:
        return [f"{path.name} or {newest[0].name} cannot be read: {' '.join(str(error).split())}"]
    names = sorted(name for name in then | now if then.get(name) != now.get(name))
    return [f"{CONFIG} says {name}={now.get(name)}, and the run was trained with {then.get(name)}" for name in names]


# -- a stretch


def check_stretch(cfg: DictConfig, run: RecordedRun, stretch: Stretch, work: Path) -> Found:
    """Compute a stretch again in a process with the arithmetic of the recorded machine, and compare the states."""
    first, last = stretch
    print(f"computing steps {first} to {last} again", flush=True)
    start = run.find_start(last)
    altered, again = compute_stretch(cfg, run, stretch, work / f"{first}_{last}", start)
    if again is None:
        return Found([altered])
    used = again.find_start(last)
    altered_facts = compare_facts(run.folder, start, used)
    machine = describe_machine_differences(start["machine"], used["machine"])
    state = file.read(again.states[last])
    difference = compare_states(file.read(run.states[last]), state)
    if machine:
        tolerance = cfg.tolerance
        if tolerance is None:
            tolerance = max(ALIKE, TIMES * measure_spread(cfg, run, stretch, work / f"{first}_{last}_spread", state))
        far = [f"steps {first} to {last}, computed again, give weights {difference.distance:.1%} away"]
        far[0] += f", and {tolerance:.1%} are tolerated on another kind of machine"
        wrong = difference.distance > tolerance
        return Found(altered_facts + far * wrong, machine, difference.distance, tolerance)
    clauses = altered_facts
    if difference.names:
        more = f" and {len(difference.names) - 1} other tensors" if len(difference.names) > 1 else ""
        other = f"{difference.names[0]}{more} than {run.states[last].name}"
        clauses.append(f"steps {first} to {last}, computed again, give another {other}")
    clauses += compare_lines(run, again, stretch)
    if steps := compare_rows(run.folder / "metrics.csv", again.folder / "metrics.csv", first, last):
        clauses.append(f"metrics.csv has other values than step {steps[0]} gives when it is computed again")
    return Found(clauses)


def compute_stretch(
    cfg: DictConfig, run: RecordedRun, stretch: Stretch, folder: Path, start: Line
) -> tuple[str, RecordedRun | None]:
    """Compute a stretch in a process with the arithmetic of a recorded start; return what it found to be altered, or
    what it saved."""
    words = [f"run={run.folder}", f"stretch=[{stretch.first},{stretch.last}]", f"output={folder}"]
    altered = run_command("verify", [*words, *trust_words(cfg.trust)], start)
    return altered, None if altered else read_recorded(folder)


def measure_spread(cfg: DictConfig, run: RecordedRun, stretch: Stretch, folder: Path, state: dict[str, Any]) -> float:
    """Measure how far the last digits alone carry the weights: the distance of the state after a stretch to the one
    that another number of threads gives here. The longer the stretch, and the larger its steps, the further."""
    print("computing them with another number of threads, to see how far last digits alone lead", flush=True)
    machine = run.find_start(stretch.last)["machine"]
    other = {"machine": machine | {"threads_set": "2" if machine["threads"] == 1 else "1"}}
    _, again = compute_stretch(cfg, run, stretch, folder, other)
    return 0.0 if again is None else compare_states(state, file.read(again.states[stretch.last])).distance


def compare_lines(run: RecordedRun, again: RecordedRun, stretch: Stretch) -> list[str]:
    """Name the first state within a stretch, and the best models, whose digests are others than computed again."""
    clauses = []
    for name, then, now in (("state", run.saved, again.saved), ("best model", run.best, again.best)):
        steps = [step for step in then if stretch.first < step <= stretch.last and step in now]
        wrong = [step for step in steps if then[step]["tensors"] != now[step]["tensors"]]
        clauses += [f"the {name} of step {step} is another one than recorded" for step in wrong[:1]]
    return clauses


def compare_facts(folder: Path, then: Line, now: Line) -> list[str]:
    """Say whether the config or the code that computed again is another one than recorded."""
    clauses = []
    if then["config"] != now["config"]:
        clauses.append("the config in its states is not the recorded one")
    if then["code"] != now["code"]:
        clauses.append(f"the code here is not the code that trained it{find_commit(folder)}")
    return clauses


def find_commit(folder: Path) -> str:
    """Say which commit a run was trained with, if its provenance.json does."""
    try:
        git = json.loads((folder / "provenance.json").read_bytes())[-1]["git"]
        return f" (commit {git['commit'][:12]}{', with changes' if git['modified'] else ''})"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def run_command(name: str, words: list[str], start: Line) -> str:
    """Run a command in a fresh process with the arithmetic of the recorded machine; return what it found to be altered.
    Raises VitlabError where it fails."""
    own = describe_arithmetic(start["machine"]["processes"])
    environment = pin(start["machine"], own, dict(os.environ))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "vitlab", name, *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode == 0:
        return ""
    sentence = (ended.stderr.strip().splitlines() or [f"{name} ended with status {ended.returncode}"])[-1]
    sentence = sentence.partition("Error: ")[2] or sentence
    if ended.returncode == AlteredError.status:
        return sentence
    kinds = {kind.status: kind for kind in VitlabError.__subclasses__()}
    raise kinds.get(ended.returncode, CheckpointError)(f"it cannot be computed again: {sentence}")


class StopAfter(Callback):
    """Saves the state after a step, and ends the training there."""

    def __init__(self, step: int):
        self.step = step

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._stop(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop(trainer)

    def _stop(self, trainer: pl.Trainer) -> None:
        if trainer.global_step >= self.step:
            latest = find_latest_state(trainer)
            latest.save(trainer)
            latest.finish()
            raise StretchDone


class StretchDone(SystemExit):
    """The last step of a stretch is done."""


def recompute(cfg: DictConfig, run: RecordedRun) -> Path:
    """Train from one kept state to another, as the run did, into a folder of its own; return it. Raises AlteredError
    for other data."""
    if len(cfg.stretch) != 2 or cfg.output is None:
        raise ConfigError("stretch= needs two steps and a folder: stretch=[0,100] output=DIR")
    first, last = cfg.stretch
    if missing := [step for step in (first, last) if step and step not in run.states]:
        raise ConfigError(f"stretch={first},{last}: {run.folder} keeps no state of step {missing[0]}")
    with open_folder(cfg, run) as folder:
        record = file.read(run.states[last])["run"]  # with the config that the run had in the stretch
        start = start_elsewhere(record, run.states[last], folder.absolute(), run.states[first] if first else None)
        found = find_values(start.cfg, find_devices(start.cfg.trainer, start.folder))
        start = replace(start, cfg=found.cfg)
        parts = train.build(start, found.datamodule)
        recorded = run.find_start(last)
        if describe_start(parts.task.record)["data"] != recorded["data"]:
            raise AlteredError("the data is not the data that it was trained on")
        set_products(recorded["machine"]["products"])
        if parts.trainer.is_global_zero and (rows := run.folder / "metrics.csv").is_file():
            write_whole(folder / rows.name, rows.read_bytes())  # which the state before the stretch has digests of
        train.train_until(start, parts, StopAfter(last), StretchDone)
    return folder


@contextmanager
def open_folder(cfg: DictConfig, run: RecordedRun) -> Iterator[Path]:
    """Make the folder of output=, which other processes of a stretch find there."""
    if is_other_rank():
        yield Path(cfg.output)
        return
    place = output_folder(cfg.output, "verify", run.folder / "verify", overwrite=cfg.overwrite)
    with place.make_folder() as folder:
        yield folder


# -- the test


def check_test(cfg: DictConfig, run: RecordedRun, work: Path) -> Found:
    """Score the test of result.json again."""
    result = read_result(run.folder)
    if result is None or result.get("partial"):
        return Found([], said="It has no result of a whole test, so none was scored again.")
    print("scoring its test again", flush=True)
    start, folder = run.lines[0], work / "test"
    words = [f"run={run.folder}", f"output={folder}", "num_worst=1", *trust_words(cfg.trust)]
    if altered := run_command("evaluate", words, start):
        return Found([altered])
    scored = json.loads((folder / "evaluation_test.json").read_bytes())
    machine = describe_machine_differences(start["machine"], describe_arithmetic(start["machine"]["processes"]))
    bound = ALIKE if machine else SAME
    wrong = [name for name, value in result["test"].items() if not is_close(value, scored.get(name), bound)]
    altered_names = [
        f"result.json says {name} {result['test'][name]:.6g}, and best.ckpt gives {scored.get(name)}" for name in wrong
    ]
    return Found(altered_names, said="Its test, scored again, gives the metrics of result.json.")


def is_close(value: float, other: float | None, bound: float) -> bool:
    """Whether two metrics are equal within a share; unknown ones, null, are equal."""
    if other is None or value != value:
        return other is None and value != value
    return abs(value - other) <= bound * max(abs(value), abs(other))


# -- what is said


def describe(total: int, found: list[Found], tested: Found) -> str:
    """Say what was computed again, and what would have passed."""
    checked, half = len(found), -(-total // 2)
    machines = list(dict.fromkeys(one.machine for one in found if one.machine))
    how = "equal bit for bit"
    if machines:
        far = max(found, key=lambda one: one.distance)
        how = (
            f"weights within {far.distance:.2g} of their norm ({far.tolerance:.2g} is tolerated), not bit for bit, "
            f"since the machine differs: {'; '.join(machines)}"
        )
    one_wrong, half_wrong = (compute_miss(total, checked, wrong) for wrong in (1, half))
    return (
        f"{checked} of {total} stretches computed again, {how}; config, data and code are those recorded. A run of "
        f"which half was not as recorded would have passed with {half_wrong:.0%}, one with a single altered stretch "
        f"with {one_wrong:.0%}. {tested.said}"
    )


# -- a chain without its run


def verify_chain(cfg: DictConfig) -> str:
    """Train the run of a chain again from its first step, and compare the digests of all states, and the test."""
    path = Path(cfg.chain)
    if not path.is_file():
        raise ConfigError(f"chain={path} is no file; name a chain.jsonl")
    try:
        given = shlex.split(cfg.config or "")
    except ValueError as error:
        raise ConfigError(f"config={cfg.config} cannot be read: {error}; close the quotes") from None
    recorded = RecordedRun(path.parent, read_chain(path))
    if not recorded.lines or recorded.lines[0].get("from_step") != 0:
        raise CheckpointError(f"{path} does not begin with step 0, so it cannot be computed from there")
    last = max(recorded.saved, default=0)
    with tempfile.TemporaryDirectory(prefix="vitlab_verify_") as work:
        folder = Path(work) / "run"
        print(f"computing all {last} steps of {path} again", flush=True)
        words = [*given, "logger=none", f"hydra.run.dir={folder}", *trust_words(cfg.trust)]
        run_command("train", words, recorded.lines[0])
        again = read_recorded(folder)
        return compare_chains(cfg, recorded, again)


def compare_chains(cfg: DictConfig, recorded: RecordedRun, again: RecordedRun) -> str:
    """Print and return whether two chains are of the same training. Raises AlteredError."""
    then, now = recorded.lines[0], again.lines[0]
    altered = [f"the {name} is not the recorded one" for name in ("config", "data") if then[name] != now[name]]
    machine = describe_machine_differences(then["machine"], now["machine"])
    wrong = [
        step for step, line in recorded.saved.items() if again.saved.get(step, {}).get("tensors") != line["tensors"]
    ]
    tests = [[line["test"] for line in one.lines if "end" in line][-1:] for one in (recorded, again)]
    bound = ALIKE if machine else 0.0
    pairs = {name: (value, tests[1][0].get(name)) for name, value in tests[0][0].items()} if all(tests) else {}
    if machine:  # losses follow the last digits of weights further than what they classify
        pairs = {name: pair for name, pair in pairs.items() if name.rpartition("/")[2].startswith("acc")}
    else:
        altered += [f"the state of step {step} is another one than recorded" for step in wrong[:1]]
    altered += [f"{name} is {b}, and recorded is {a}" for name, (a, b) in pairs.items() if not is_close(a, b, bound)]
    if altered:
        raise AlteredError(f"{cfg.chain} was not computed by this: {'; '.join(altered)}")
    how = f"all {len(recorded.saved)} states are equal bit for bit, and so is the test"
    if machine:
        how = f"the machine differs ({machine}): {len(wrong)} of {len(recorded.saved)} states are not equal bit for bit"
        how += "".join(f", {name} is {b:.4f} for {a:.4f}" for name, (a, b) in pairs.items())
    code = "" if then["code"] == now["code"] else " The code has changed since it was recorded."
    sentence = f"{cfg.chain} computed again from step 0: {how}.{code}"
    print(sentence)
    return sentence
