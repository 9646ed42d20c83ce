"""Draw which faults come to which runs: a line of JSON for each, from one seed."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

# what is trained or written, and how often it is drawn; play.py says how
RUNS = {"images": 48, "shards": 16, "ddp": 11, "fsdp": 7, "wandb": 5}
JOBS = {"cache": 5, "pack": 5, "export": 6, "predict": 6}
SIGNALS = {"SIGKILL": 30, "SIGTERM": 10, "SIGINT": 8, "SIGINT twice": 6, "SIGHUP": 6, "SIGUSR1": 6, "SIGUSR2": 4}
# at an operation on a file of the run: killed before it, or a moment after it has begun; the disk is full for this
# one, or read-only from it on
OPERATIONS = {"killed before": 30, "killed after": 20, "disk full": 14, "read-only": 6}
TIMED = {"folder deleted": 6, "folder renamed": 5, "clock set back": 5, "file size limited": 6, "hung": 6}
DISKS = {"small disk": 8}  # before the first start, where this user may mount one
# to the newest state, before the run is started again
DAMAGES = {"truncated": 8, "empty": 6, "one bit flipped": 12, "of another run": 8, "removed": 4}
WORKERS = {"worker killed": 16, "worker hung": 6, "shared memory too small": 10}
RANKS = {"rank killed": 8, "rank hung": 4, "rank cut off": 6, "rank terminated": 4}
LATEST = 0.8  # moment: a resumed start is shorter than the whole run
SERVERS = {"server refuses": 1, "server is silent": 1, "server dies": 2}


@dataclass(frozen=True)
class Fault:
    """`kind` comes to the run or job `target` of `scenario`, in this order; `moment` is a share of its undisturbed
    length, in seconds or operations on files. `workers` load its data; a run `in_background` writes its states while
    training goes on."""

    number: int
    scenario: int
    target: str
    kind: str
    moment: float
    delay: float  # seconds between an operation and a kill after it, or between two signals
    rank: int
    workers: int
    in_background: bool


def draw(count: int, seed: int) -> Iterator[Fault]:
    """Draw so many faults, one to four for each run."""
    chance = random.Random(seed)
    number = scenario = 0
    while number < count:
        target = pick(chance, RUNS | JOBS)
        workers = chance.choice([0, 2]) if target in ("images", "shards") else 0
        background = chance.random() < 0.5
        for turn in range(chance.randint(1, 4) if target in RUNS and target != "wandb" else 1):
            kind = pick(chance, kinds(target, workers, first=turn == 0))
            moment, delay, rank = (
                round(chance.uniform(0, LATEST), 4),
                round(chance.random() / 50, 4),
                chance.randrange(2),
            )
            if number < count:
                yield Fault(number, scenario, target, kind, moment, delay, rank, workers, background)
            number += 1
        scenario += 1


def kinds(target: str, workers: int, first: bool) -> dict[str, int]:
    """What may come to a target; before its `first` start there is no state to damage."""
    if target in JOBS:
        return {"SIGKILL": 2, "SIGTERM": 1, "SIGINT": 1, "killed before": 3, "killed after": 3, "disk full": 1}
    if target == "wandb":
        return SERVERS
    if target in ("ddp", "fsdp"):
        return RANKS | {"SIGKILL": 6, "SIGTERM": 3, "killed before": 6}
    return SIGNALS | OPERATIONS | TIMED | (DISKS if first else DAMAGES) | (WORKERS if workers else {})


def pick(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def write(path: Path, faults: list[Fault]) -> None:
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in faults), encoding="utf-8")


def read(path: Path) -> list[list[Fault]]:
    """The faults of each scenario."""
    faults = [Fault(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return [list(group) for _, group in groupby(faults, lambda one: one.scenario)]
