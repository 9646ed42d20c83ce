"""What a sweep costs beside its training.

    python experiments/benchmarks/sweeps.py [--trials 16] [--stubs 1000] [--out sweeps.md]

Trials: so many runs of 30 steps of the smallest model on the digits, without pictures, forked from a process that has
imported everything, against a fresh process for each, on as many slots as there are cores. Stubs: so many jobs that do
nothing but to say that they are done, one at a time and on all slots; what they take is what scheduling costs.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from vitlab.sweeps.folder import Job, Request, SweepFolder  # noqa: E402
from vitlab.sweeps.local import Local  # noqa: E402
from vitlab.sweeps.schedule import JobSource, Schedule  # noqa: E402
from vitlab.sweeps.stop import Stop  # noqa: E402

SLOTS = len(os.sched_getaffinity(0))
OPTIONS = ["model=vit_mu4", "trainer=cpu", "logger=none", "data.loading.num_workers=0", "trainer.max_steps=30"]
OPTIONS += [
    "~callbacks.evaluation_report",
    "~callbacks.batch_picture",
    "~callbacks.model_views",
    f"engine.slots={SLOTS}",
]
STUB = """
import os, sys
folder = sys.argv[1].removeprefix("resume=")
os.mkdir(folder)
with open(folder + "/result.json", "w") as file:
    file.write('{"score": 1.0, "test": {}}')
"""


def trials(number: int, folder: Path, *words: str) -> float:
    """Seconds of a sweep of so many seeds, each of which has trained to a finite loss."""
    seeds = f"seed={','.join(map(str, range(number)))}"
    command = [
        sys.executable,
        str(ROOT / "src" / "train.py"),
        "-m",
        *OPTIONS,
        seeds,
        f"hydra.sweep.dir={folder}",
        *words,
    ]
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - begun
    results = [json.loads(path.read_text()) for path in folder.glob("*/result.json")]
    assert len(results) == number
    assert all(one["steps"] == 30 and math.isfinite(one["test"]["test/loss"]) for one in results)
    return seconds


def stubs(number: int, folder: Path, slots: int) -> float:
    """Seconds of so many jobs without work, from the first that is submitted to the last that is done."""
    sweep = SweepFolder(folder)
    folder.mkdir()
    (folder / "stub.py").write_text(STUB)
    for one in range(number):
        sweep.add(
            Job(number=one, name=f"job{one}", overrides=[f"n={one}"], choices={}, monitor="m", run_id="stub"), b""
        )
    sweep.save(Request(config={}, same=[], jobs=[]))
    engine = Local(slots=slots, gpus_per_slot=0, threads=1, preload=False, sweep=folder, modules=[])
    with engine, Stop() as stop:
        while not engine.ready:
            engine.poll(0.1)
        begun = time.perf_counter()
        Schedule(sweep, engine, [str(folder / "stub.py")], JobSource(), []).run(stop)
        seconds = time.perf_counter() - begun
    assert all(sweep.state(f"job{one}").status == "done" for one in range(number))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--stubs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    arguments = parser.parse_args()
    number, jobs = arguments.trials, arguments.stubs
    with tempfile.TemporaryDirectory() as folder:
        forked = trials(number, Path(folder, "forked"))
        fresh = trials(number, Path(folder, "fresh"), "engine.preload=false")
        rows = [
            (f"{number} trials of 30 steps, {SLOTS} slots, forked", f"{forked:.1f} s"),
            (f"{number} trials of 30 steps, {SLOTS} slots, a fresh process each", f"{fresh:.1f} s"),
            ("forked, of the time of fresh processes", f"{forked / fresh:.2f}"),
        ]
        for slots in dict.fromkeys((1, SLOTS)):
            seconds = stubs(jobs, Path(folder, f"stubs{slots}"), slots)
            rows.append((f"{jobs:,} stub jobs, {slots} slot(s), each", f"{1000 * seconds / jobs:.1f} ms"))
    load = os.getloadavg()[0]
    lines = ["| what | measured |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)]
    text = "# What a sweep costs beside its training\n\n`python experiments/benchmarks/sweeps.py`, on " + (
        f"{SLOTS} cores; load average at the end {load:.1f}.\n\n"
    )
    arguments.out.write_text(text + "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
