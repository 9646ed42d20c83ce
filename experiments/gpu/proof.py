"""Every step of the proof in a process of its own, one after the other, and what they found: see gpu_proof.sh.

The processes are forks of one that has imported torch and has not touched the GPU, so that a step begins at once.
"""

import argparse
import datetime
import faulthandler
import functools
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from scale import CPU, GPU
from step import Assignment, Found, UnavailableError

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / "src"), str(ROOT / "experiments" / "benchmarks"), str(Path(__file__).parent)]
IMPORTED_ONCE = ["torch", "torchvision", "pytorch_lightning", "omegaconf", "hydra"]
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOWN = 25  # last lines of the output of a step that failed


@dataclass(frozen=True)
class Step:
    """`work` is module:function; `seconds` it may take, and with fewer than `least` left it is not begun."""

    name: str
    work: str
    seconds: float
    least: float


# what says most comes first
STEPS = (
    Step("machine", "machine:describe", 60, 10),
    Step("tests", "gpu_tests:run", 200, 30),
    Step("eager", "training:eager", 75, 20),
    Step("compiled", "training:compiled", 150, 40),
    Step("interruption", "interruption:interrupt", 75, 20),
    Step("resumed", "resumed:bit_by_bit", 200, 60),
    Step("sharded", "sharded:beside_whole", 150, 40),
    Step("timeline", "timeline:record", 60, 20),
    Step("attention", "speed:attention_kernels", 45, 10),
    Step("memory", "memory:stays_flat", 110, 30),
    Step("float8", "training:float8", 200, 60),
    Step("progressive", "training:progressive", 120, 40),
    Step("beside_timm", "speed:beside_timm", 150, 40),
    Step("cifar10", "cifar10:learn", 600, 60),
)


@dataclass
class Outcome:
    """PASS, FAIL or SKIP, one line that says what was found, all figures by name, and lines for the report."""

    name: str
    result: str = "FAIL"
    seconds: float = 0.0
    figure: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.result} {self.name} {self.seconds:.1f} {self.figure}"


class Stopped(BaseException):
    """Ctrl-C or SIGTERM, with its number."""


# -- in the process of a step


def perform(step: Step, given: Assignment, log: Path, sender: Connection) -> None:
    """Do a step, and send its result and what it found."""
    os.setsid()  # all that it starts can be ended with it
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.dump_traceback_later(max(given.seconds - GRACE, 1))  # where it hangs
    os.chdir(given.folder)
    result = "PASS"
    try:
        use_compiler(given.scale.compiler)
        module, _, function = step.work.partition(":")
        found = getattr(importlib.import_module(module), function)(given)
    except UnavailableError as reason:
        result, found = "SKIP", Found(str(reason), {})
    except Exception as error:
        traceback.print_exc()
        reason = str(error).strip().split("\n")[0]
        result, found = "FAIL", Found(f"{type(error).__name__}: {reason}", {})
    sys.stdout.flush()
    sys.stderr.flush()
    sender.send((result, *found))


def use_compiler(backend: str) -> None:
    """A CPU traces and differentiates what a GPU compiles, and leaves it at that: C++ would take minutes."""
    import torch

    if backend != "inductor":
        torch.nn.Module.compile = functools.partialmethod(torch.nn.Module.compile, backend=backend)


# -- in the process that watches


class Proof:
    """The steps, until the deadline."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path):
        self.arguments, self.scratch, self.kept = arguments, scratch, arguments.output
        self.began = time.monotonic()
        self.deadline = self.began + 60 * arguments.minutes
        self.outcomes: list[Outcome] = []
        self.log = self.kept / "log.txt"
        self.log.write_text("")
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(IMPORTED_ONCE)

    def run(self) -> None:
        for step in STEPS:
            if not self.arguments.only or step.name in self.arguments.only:
                self.outcomes.append(outcome := Outcome(step.name))
                begin = self.log.stat().st_size
                self.attempt(step, outcome)
                print(outcome, flush=True)
                if outcome.result == "FAIL":
                    self.print_end_of_log(begin)
                self.write()

    def attempt(self, step: Step, outcome: Outcome) -> None:
        left = self.deadline - time.monotonic()
        if left < step.least:
            outcome.result, outcome.figure = "SKIP", f"{max(left, 0):.0f} s are left, and it wants {step.least:.0f}"
            return
        folder = self.scratch / step.name
        folder.mkdir()
        with open(self.log, "a") as log:
            log.write(f"\n===== {step.name}\n")
        seconds, scale = (left, CPU) if self.arguments.dry else (min(step.seconds, left), GPU)
        given = Assignment(scale, folder, self.kept, seconds, self.arguments.cifar10)
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=perform, args=(step, given, self.log, sender))
        outcome.figure, start = "stopped", time.monotonic()
        try:
            process.start()
            sender.close()
            start = time.monotonic()  # without the imports before the first step
            outcome.result, outcome.figure, *found = self.found(process, receiver, seconds)
            if found:
                outcome.figures, outcome.lines = found
        finally:
            outcome.seconds = time.monotonic() - start
            end(process)
            shutil.rmtree(folder, ignore_errors=True)

    def print_end_of_log(self, begin: int) -> None:
        with open(self.log, "rb") as log:
            log.seek(begin)
            said = log.read().decode(errors="replace").splitlines()
        print("\n".join(f"    {line}" for line in said[-SHOWN:]), flush=True)

    @staticmethod
    def found(process: Any, receiver: Connection, seconds: float) -> tuple[Any, ...]:
        if not wait([receiver, process.sentinel], timeout=seconds):
            return "FAIL", f"no end after {seconds:.0f} s"
        try:
            found = receiver.recv()
        except EOFError:  # it died
            process.join()
            return "FAIL", f"the process ended with status {process.exitcode}"
        process.join(GRACE)
        return found

    # -- what is told

    @property
    def failed(self) -> bool:
        return any(outcome.result == "FAIL" for outcome in self.outcomes)

    def write(self) -> None:
        """gpu_proof.json and gpu_proof.md, anew after each step: what was found stays, whatever comes."""
        counts = {result: sum(o.result == result for o in self.outcomes) for result in ("PASS", "FAIL", "SKIP")}
        summary = ", ".join(f"{count} {result}" for result, count in counts.items())
        facts = next((outcome.figures for outcome in self.outcomes if outcome.name == "machine"), {})
        about = {
            "date": str(datetime.date.today()),
            "dry": self.arguments.dry,
            "commit": commit(),
            "seconds": round(time.monotonic() - self.began),
            **{name: facts[name] for name in ("device", "versions") if name in facts},
        }
        content = {**about, "summary": summary, "steps": [asdict(outcome) for outcome in self.outcomes]}
        (self.kept / "gpu_proof.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        versions = ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items())
        lines = [f"{about['date']}, {facts.get('device', 'unknown device')}, {versions}, commit {about['commit']}."]
        lines += ["A dry run on a CPU: its figures mean nothing."] if self.arguments.dry else []
        lines += [f"{summary}, {about['seconds']} s.", "", "| step | result | s | found |", "|---|---|---|---|"]
        for o in self.outcomes:
            lines.append(f"| {o.name} | {o.result} | {o.seconds:.1f} | {o.figure.replace('|', '/')} |")
        for outcome in self.outcomes:
            if outcome.lines:
                lines += ["", f"### {outcome.name}", "", *outcome.lines]
        (self.kept / "gpu_proof.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def end(process: Any) -> None:
    """End a step and all that it started; those that a finished one left behind, too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError, TypeError):  # gone, not yet a group, never started
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)
        if process.pid is not None:
            process.join(GRACE)


def commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False) if shutil.which("git") else None
    return found.stdout.strip() if found and found.returncode == 0 else "unknown"


def install_missing(wheels: Path, site: Path) -> list[str]:
    """Unpack the wheels of what is not installed into `site`; returns their names."""
    missing = [wheel for wheel in sorted(wheels.glob("*.whl")) if not installed(wheel.name.split("-")[0])]
    if missing:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
        subprocess.run([*command, *map(str, missing)], check=True)
    return [wheel.name for wheel in missing]


def installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_proof.sh")
    parser.add_argument("output", type=Path, help="a folder for what is found")
    parser.add_argument("--dry", action="store_true", help="every step in miniature, on a CPU")
    parser.add_argument("--minutes", type=float, default=9.5, help="for all of it")
    parser.add_argument("--only", type=lambda names: names.split(","), help="names of steps, with commas")
    parser.add_argument("--cifar10", type=Path, help="its images: train/<class>/*.jpg and test/<class>/*.jpg")
    parser.add_argument("--carried", type=Path, default=ROOT / "dist" / "wheels", help="wheels of what may be missing")
    arguments = parser.parse_args()
    names = [step.name for step in STEPS]
    if unknown := set(arguments.only or ()) - set(names):
        parser.error(f"there is no step {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if arguments.cifar10 and not (arguments.cifar10 / "train").is_dir():
        parser.error(f"{arguments.cifar10} has no folder train")
    for name in ("output", "carried", "cifar10"):
        path = getattr(arguments, name)
        setattr(arguments, name, path.absolute() if path else None)
    return arguments


def stop(number: int, frame: Any) -> None:
    for ended in SIGNALS:
        signal.signal(ended, signal.SIG_IGN)  # it ends already
    raise Stopped(number)


def main() -> int:
    arguments = parsed()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for number in SIGNALS:
        signal.signal(number, stop)
    status = 0
    with tempfile.TemporaryDirectory(prefix="gpu_proof_", ignore_cleanup_errors=True) as temporary:
        scratch = Path(temporary)
        proof = Proof(arguments, scratch)
        try:
            added = install_missing(arguments.carried, scratch / "site")
            if added:
                print("carried:", ", ".join(added), flush=True)
            sys.path += [*PATHS, str(scratch / "site")]
            os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, str(scratch / "site")])
            os.environ |= {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic products
            if arguments.dry:
                os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
            proof.run()
        except Stopped as stopped:
            status = 128 + stopped.args[0]
            print(f"stopped by {signal.Signals(stopped.args[0]).name}")
        finally:
            proof.write()
            print(f"{arguments.output / 'gpu_proof.md'}", flush=True)
    return status or int(proof.failed)


if __name__ == "__main__":
    sys.exit(main())
