"""Play faults on runs and jobs, start each again, and compare it with the one that nobody disturbed.

python tests/faults/play.py FOLDER [--faults 500] [--seed 0] [--manifest FILE] [--players 2]

Draws the faults, or reads a manifest. FOLDER/manifest.jsonl has a line for each, FOLDER/results.jsonl one for each
scenario that was played; started again, it goes on after those. Runs are forked from a process that has imported
everything: a start costs a tenth of a second. The last line says what was done; status 1 with what differs.
"""

import argparse
import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest import mock

TESTS = Path(__file__).parents[1]
SRC = TESTS.parent / "src"
sys.path[:0] = [str(SRC), str(TESTS), str(Path(__file__).parent)]
os.environ |= {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

import manifest  # noqa: E402
import pytorch_lightning  # noqa: E402, F401 - for the runs that are forked
from comparison import compare_files, compare_runs  # noqa: E402
from injection import SAID, Operations, arm, damage  # noqa: E402
from manifest import Fault  # noqa: E402
from targets import entry_of, make_images, processes_of, serve, words_of  # noqa: E402

from vitlab.checkpoints import writer  # noqa: E402
from vitlab.checkpoints.run_folder import LATEST  # noqa: E402

TELL = signal.SIGRTMIN  # a process prints where it is
LONGEST = 240  # seconds
MET = "Initializing distributed"  # what ranks print when they have found each other
# what a worker meets that writes to shared memory without room is SIGBUS
OF_WORKERS = {
    "worker killed": signal.SIGKILL,
    "worker hung": signal.SIGSTOP,
    "shared memory too small": signal.SIGBUS,
}
ANSWERS = {0, *range(2, 8), *(128 + number for number in range(1, 32))}


class Started:
    """A run or job that was started in `folder`, by one process or by several, with a fault that is to come."""

    def __init__(
        self, target: str, folder: Path, words: list[str], fault: Fault, whole: dict | None, served: dict[str, str]
    ):
        self.log, self.begun = folder.parents[1] / f"{folder.name}.log", time.monotonic()
        self.log.touch()
        self.told = self.log.stat().st_size
        environments = processes_of(target)
        self.pids = []
        for rank, environment in enumerate(environments):
            own = fault if whole and rank == fault.rank % len(environments) else None
            if not (pid := os.fork()):
                self.work(entry_of(target), folder, words, environment | served, own, whole, fault.in_background)
            self.pids.append(pid)
        self.status: dict[int, int] = {}

    def work(self, entry, folder, words, environment, fault, whole, in_background) -> None:
        """Never returns."""
        status = 1
        try:
            os.setpgid(0, 0)
            for number in (1, 2):
                os.dup2(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
            signal.signal(signal.SIGINT, signal.default_int_handler)
            faulthandler.register(TELL)
            os.environ.update(environment)
            os.chdir(folder.parent)
            if in_background:
                mock.patch.object(writer, "LARGE", 0).start()
            operations = Operations(folder)
            if fault:
                arm(fault, operations, whole["operations"], whole["seconds"], whole["size"])
            sys.argv = [str(SRC / f"{entry}.py"), *words]
            __import__(entry).main()
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except KeyboardInterrupt:
            status = 130
        except BaseException:
            traceback.print_exc()
        finally:
            import atexit

            with suppress(BaseException):
                atexit._run_exitfuncs()
            if not whole and os.environ.get("RANK", "0") == "0":
                folder.with_suffix(".count").write_text(str(operations.count))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def send(self, number: int, pid: int | None = None) -> None:
        """A signal to a process; to all where none is named."""
        for one in self.pids if pid is None else [pid]:
            with suppress(ProcessLookupError):
                os.kill(one, number)

    def workers(self) -> list[int]:
        """Processes that load data: those that the first one has forked."""
        try:
            children = Path(f"/proc/{self.pids[0]}/task/{self.pids[0]}/children").read_text().split()
        except OSError:
            return []
        return sorted(map(int, children))

    def wait(self, until: float | None = None) -> list[int] | None:
        """The statuses of all processes, or None if they have not ended until then."""
        end = time.monotonic() + LONGEST if until is None else until
        while True:
            for pid in self.pids:
                if pid not in self.status:
                    done, code = os.waitpid(pid, os.WNOHANG)
                    if done:
                        self.status[pid] = os.waitstatus_to_exitcode(code)
            if len(self.status) == len(self.pids):
                return [self.status[pid] for pid in self.pids]
            if any(self.status.values()) and MET not in self.words():
                self.send(signal.SIGKILL)  # as torchrun and srun do, where ranks had not yet met
            if time.monotonic() > end:
                return None
            time.sleep(0.01)

    def end(self) -> list[int]:
        """Wait for the end; after minutes without one, a TimeoutError."""
        statuses = self.wait()
        if statuses is None:
            self.send(TELL)
            time.sleep(1)
            for pid in self.pids:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            self.wait()
            raise TimeoutError(f"it did not end within {LONGEST} s")
        return statuses

    def words(self) -> str:
        """What this start printed."""
        return self.log.read_bytes()[self.told :].decode("utf-8", "replace")


def strike(started: Started, fault: Fault, folder: Path, seconds: float) -> tuple[bool, Path]:
    """Let a fault come from outside at its moment; returns whether it did, and where the run is afterwards."""
    if started.wait(started.begun + fault.moment * seconds) is not None:
        return False, folder
    own = started.pids[fault.rank % len(started.pids)]
    match fault.kind.split():
        case [name] if name.startswith("SIG"):
            started.send(signal.Signals[name])
        case [name, "twice"]:
            started.send(signal.Signals[name])
            time.sleep(fault.delay * 10)
            started.send(signal.Signals[name])
        case ["rank", "killed"]:
            started.send(signal.SIGKILL, own)
        case ["rank", "terminated"]:
            started.send(signal.SIGTERM, own)
        case ["rank", "hung"] if MET in started.words():
            started.send(signal.SIGSTOP, own)
            others = [pid for pid in started.pids if pid != own]
            end = time.monotonic() + LONGEST
            while not all(pid in started.status for pid in others) and time.monotonic() < end:
                started.wait(time.monotonic() + 0.1)
            started.send(signal.SIGKILL, own)
        case ["hung"]:
            started.send(signal.SIGSTOP)
            time.sleep(1)
            started.send(signal.SIGCONT)
        case ["worker", _] | ["shared", *_]:
            chosen = started.workers()[fault.rank : fault.rank + 1]
            if not chosen:
                return False, folder
            started.send(OF_WORKERS[fault.kind], *chosen)
        case ["folder", "deleted"]:
            shutil.rmtree(folder, ignore_errors=True)
        case ["folder", "renamed"]:
            if not folder.is_dir():
                return False, folder
            return True, folder.rename(folder.with_name(f"{folder.name}_moved{fault.number}"))
        case ["rank", "hung"]:
            return False, folder
        case _:  # what comes from within, or came before the start
            return False, folder
    return True, folder


def mount(folder: Path, size: int) -> bool:
    """Make a folder a disk of so many bytes; returns whether this user may."""
    return not subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False).returncode


def unmount(folder: Path) -> None:
    """Put what a small disk holds on the large one below it."""
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    subprocess.run(["umount", folder], check=True)
    shutil.copytree(kept, folder, dirs_exist_ok=True)


def prepare(place: Path, targets: set[str]) -> None:
    """Make what runs and jobs read, and do each once without a fault."""
    given = place / "given"
    given.mkdir(parents=True, exist_ok=True)
    make_images(given)
    for name, target in (("run", "images"), ("shards", "pack")):
        undisturbed(target, place)
        if not (given / name).is_dir():
            shutil.copytree(place / target, given / name)
    if not (other := given / "other").is_dir():
        words = [*words_of("images", place, other), "seed=1", "trainer.max_epochs=1"]
        assert Started("images", other, words, nothing("images"), None, {}).end() == [0]
    for target in sorted(targets):
        undisturbed(target, place)


def resumable(folder: Path) -> bool:
    return any((folder / "checkpoints" / f"{name}.ckpt").is_file() for name in LATEST)


def start(
    target: str,
    place: Path,
    folder: Path,
    fault: Fault,
    whole: dict | None = None,
    served: dict[str, str] | None = None,
) -> Started:
    """Start a run or a job, or go on with it; a run that had saved nothing begins anew."""
    words = words_of(target, place, folder)
    if target not in manifest.JOBS:
        if resumable(folder):
            words = [f"resume={folder}"]
        else:
            shutil.rmtree(folder, ignore_errors=True)
            words.append(f"data.loading.num_workers={fault.workers}")
    return Started(target, folder, words, fault, whole, served or {})


def nothing(target: str) -> Fault:
    return Fault(-1, -1, target, "nothing", 0, 0, 0, 0, False)


def undisturbed(target: str, place: Path) -> dict:
    """What a target is without a fault: where it lies, its length in seconds and operations, its largest file."""
    known = place / f"{target}.json"
    if not known.is_file():
        folder = place / target
        shutil.rmtree(folder, ignore_errors=True)
        begun = time.monotonic()
        folder.parent.mkdir(parents=True, exist_ok=True)
        one = start(target, place, folder, nothing(target))
        assert one.end() == [0] * len(one.pids), one.words()
        seconds = time.monotonic() - begun
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        count = int(folder.with_suffix(".count").read_text())
        known.write_text(json.dumps({"seconds": seconds, "operations": count, "size": max(sizes), "bytes": sum(sizes)}))
    return {"folder": place / target, **json.loads(known.read_text())}


def play(faults: list[Fault], place: Path) -> dict:
    """Play the faults of one scenario; returns which of them came, the statuses of each start, and what is wrong."""
    target, shared = faults[0].target, place / "undisturbed"
    whole = undisturbed(target, shared)
    scenario = place / f"scenario{faults[0].scenario}"
    if (scenario / "disk").is_mount():  # of a player that was interrupted
        subprocess.run(["umount", scenario / "disk"], check=True)
    shutil.rmtree(scenario, ignore_errors=True)
    folder = scenario / "disk" / target
    folder.parent.mkdir(parents=True)
    came, ends, wrong = [], [], []
    other = shared / "given" / "other" / "checkpoints" / "latest.ckpt"
    compare = compare_files if target in manifest.JOBS else compare_runs
    for fault in faults:
        with ExitStack() as stack:
            served = serve(stack, fault, whole["seconds"])
            small = fault.kind == "small disk" and mount(folder.parent, int(fault.moment * whole["bytes"]))
            struck = small or damage(folder / "checkpoints" / "latest.ckpt", fault, other) or bool(served)
            one = start(target, shared, folder, fault, whole, served)
            hit, folder = strike(one, fault, folder, whole["seconds"])
            ends.append(one.end())
        if small:
            unmount(folder.parent)
        came += [fault.number] if struck or hit or SAID in one.words() else []
        wrong += judge(fault, ends[-1], one.words())
        latest, previous = (folder / "checkpoints" / f"{name}.ckpt" for name in LATEST)
        only = fault.kind in manifest.DAMAGES and not previous.is_file()
        if 4 in ends[-1] and (only or fault.kind == "of another run"):  # as it asks: take the file away
            latest.unlink()
        if not any(ends[-1]):
            break
    if any(ends[-1]) and not (target in manifest.JOBS and not compare(whole["folder"], folder)):
        one = start(target, shared, folder, faults[-1])
        ends.append(one.end())
    if any(ends[-1]) and target not in manifest.JOBS:
        wrong.append(f"started again, it ended with {ends[-1]}: {one.words()[-600:]}")
    else:
        wrong += [f"differs: {name}" for name in compare(whole["folder"], folder)]
    return {"scenario": faults[0].scenario, "target": target, "came": came, "ends": ends, "wrong": wrong}


def judge(fault: Fault, statuses: list[int], said: str) -> list[str]:
    """What is wrong with how a start ended: an unknown status, a traceback, or an error without one sentence."""
    strange = [status for status in statuses if status not in ANSWERS and status != -signal.SIGKILL]
    wrong = [f"{fault.kind}: status {status}" for status in strange if not signalled(fault, status)]
    wrong += [f"{fault.kind}: a traceback: {said[-1500:]}"] if "Traceback" in said else []
    if any(status in range(2, 8) for status in statuses) and "Error: " not in said:
        wrong.append(f"{fault.kind}: status {statuses} without a sentence: {said[-600:]}")
    return wrong


def signalled(fault: Fault, status: int) -> bool:
    """Whether a process died by the very signal that was sent, before it could answer; or by gloo's own abort, where
    its connections ended while it closed them."""
    if fault.kind == "rank cut off" and status == -signal.SIGABRT:
        return True
    name = "SIGTERM" if fault.kind == "rank terminated" else fault.kind.split()[0]
    return name.startswith("SIG") and status == -signal.Signals[name]


def record(place: Path, result: dict) -> None:
    with open(place / "results.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    if not result["wrong"]:
        shutil.rmtree(place / f"scenario{result['scenario']}", ignore_errors=True)


def recorded(place: Path) -> dict[int, dict]:
    path = place / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {line["scenario"]: line for line in map(json.loads, lines)}


def player(number: int, players: int, scenarios: list[list[Fault]], place: Path) -> None:
    """Play each so-manyth scenario, in a process of its own."""
    done = recorded(place)
    for faults in scenarios[number::players]:
        if faults[0].scenario in done:
            continue
        try:
            result = play(faults, place)
        except Exception:
            result = {"scenario": faults[0].scenario, "came": [], "wrong": [traceback.format_exc()]}
        record(place, result)
        kinds = ", ".join(f"{one.kind}{'' if one.number in result['came'] else ' (too late)'}" for one in faults)
        print(f"{faults[0].scenario} {faults[0].target}: {kinds}: {result['wrong'] or 'nothing differs'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--players", type=int, default=2)
    given = parser.parse_args()
    place = given.folder.absolute()
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "manifest.jsonl").is_file():
        faults = list(manifest.draw(given.faults, given.seed))
        shutil.copy(given.manifest, place / "manifest.jsonl") if given.manifest else manifest.write(
            place / "manifest.jsonl", faults
        )
    scenarios = manifest.read(place / "manifest.jsonl")
    prepare(place / "undisturbed", {faults[0].target for faults in scenarios})
    pids = []
    for number in range(given.players):
        if not (pid := os.fork()):
            player(number, given.players, scenarios, place)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    summarize(scenarios, recorded(place))


def summarize(scenarios: list[list[Fault]], results: dict[int, dict]) -> None:
    came = {number for line in results.values() for number in line["came"]}
    kinds = Counter(one.kind for faults in scenarios for one in faults if one.number in came)
    wrong = {number: line["wrong"] for number, line in results.items() if line["wrong"]}
    print(json.dumps(dict(kinds.most_common())))
    print(f"{len(came)} faults in {len(results)} runs and jobs: {wrong or 'nothing differs'}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
