"""Kill a sweep's processes at random moments, type it again until it is done, and compare with an undisturbed one.

python tests/kill_sweeps.py FOLDER NUMBER SEED [engine=...]: so many kills of the sweeper, of what supervises its jobs,
or of a job; with engine=ray, on a cluster of two nodes, also of a node with all that runs on it. The last line says
what was done; status 1 with what differs.
"""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent)]

from conftest import chosen  # noqa: E402
from kill_runs import OPTIONS, SRC, differences  # noqa: E402

from vitlab.sweeps.folder import SweepFolder  # noqa: E402

COMMAND = [
    sys.executable,
    str(SRC / "train.py"),
    "-m",
    *chosen(*OPTIONS, "trainer.max_epochs=8", "seed=0,1,2", "model=vit_mu4"),
]


def started(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Type the sweep's command."""
    with open(folder.parent / f"{folder.name}.log", "ab") as log:
        return subprocess.Popen([*COMMAND, f"hydra.sweep.dir={folder}", *words], stdout=log, stderr=log)


def victim(kind: str, sweeper: int, sweep: SweepFolder) -> int | None:
    """A process of that kind, if there is one at this moment."""
    running = [job.name for job in sweep.jobs() if sweep.state(job.name).status == "running"]
    if kind == "sweeper":
        return sweeper
    if kind == "supervisor":
        return next((sweep.state(name).pid for name in running), None)
    locks = [sweep.path / name / ".lock" for name in running]
    try:
        return next((json.loads(lock.read_text())["pid"] for lock in locks if lock.is_file()), None)
    except ValueError:  # it is being written
        return None


class Nodes:
    """A Ray cluster on this machine, of a head without a slot and two nodes with one each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **self.options()})
        self.nodes = [self.cluster.add_node(num_cpus=1, **self.options()) for _ in range(2)]

    def options(self) -> dict[str, Any]:
        return {"object_store_memory": 80 * 2**20, "include_dashboard": False}

    def kill(self, chosen: random.Random) -> None:
        """Kill a node as a loss of power does, and put another one in its place."""
        node = self.nodes.pop(chosen.randrange(len(self.nodes)))
        raylets = [one.process.pid for one in node.all_processes["raylet"]]
        for pid in descendants(raylets):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.append(self.cluster.add_node(num_cpus=1, **self.options()))


def descendants(pids: list[int]) -> list[int]:
    """The processes that these have started, and so on."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    while new := [pid for pid, parent in parents.items() if parent in (*pids, *found) and pid not in found]:
        found += new
    return found


def finishes(sweep: SweepFolder, name: str) -> int:
    """How often a run has ended well: it says so in its log."""
    return (sweep.home(name) / "console.log").read_text().count("evaluate.py run=")


def table(folder: Path) -> list[dict[str, str]]:
    with open(folder / "results.csv", newline="") as lines:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(lines)]


def faults_of(whole: SweepFolder, sweep: SweepFolder) -> list[str]:
    """What is not as in the sweep that nobody disturbed, what was done twice, and what overwritten."""
    found = [] if table(whole.path) == table(sweep.path) else ["results.csv differs"]
    for job in sweep.jobs():
        found += [f"{job.name}: {one}" for one in differences(whole.path / job.name, sweep.path / job.name)]
        if (count := finishes(sweep, job.name)) != 1:
            found.append(f"{job.name} was finished {count} times")
        steps = [start["from_step"] for start in json.loads((sweep.path / job.name / "provenance.json").read_text())]
        if steps[0] != 0 or steps != sorted(steps):
            found.append(f"{job.name} was started from steps {steps}")
    return found


def main(folder: Path, number: int, seed: int, *words: str) -> None:
    chosen = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    nodes = Nodes() if "engine=ray" in words else None
    words += (f"engine.address={nodes.cluster.address}",) if nodes else ()
    begun = time.monotonic()
    whole = SweepFolder(folder / "whole")
    assert started(whole.path, *words).wait() == 0, (folder / "whole.log").read_text()
    length = time.monotonic() - begun
    done: Counter[str] = Counter()
    faults: list[str] = []
    sweeps = 0
    victims = ["sweeper", "supervisor", "job", *(["node"] if nodes else [])]
    while done.total() < number:
        sweep = SweepFolder(folder / f"sweep{sweeps}")
        sweeps += 1
        left = min(chosen.randint(2, 5), number - done.total())
        sweeper = started(sweep.path, *words)
        while left:
            time.sleep(chosen.uniform(0, length / 3))
            if sweeper.poll() is not None:
                break
            kind = chosen.choice(victims)
            if nodes and kind == "node":
                nodes.kill(chosen)
                done[kind] += 1
                left -= 1
                continue
            if (pid := victim(kind, sweeper.pid, sweep)) is None:
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has ended by itself meanwhile
                continue
            done[kind] += 1
            left -= 1
            if kind == "sweeper":
                sweeper.wait()
                sweeper = started(sweep.path, *words)
        status = sweeper.wait()
        if status:  # a job that was killed too often before it had saved a state is given up until the next start
            status = started(sweep.path, *words).wait()
        new = faults_of(whole, sweep) if status == 0 else [f"ended with {status}"]
        faults += [f"{sweep.path.name}: {fault}" for fault in new]
        print(f"{done.total()} of {number}, {len(faults)} fault(s)", flush=True)
    print(f"{dict(done)} in {sweeps} sweeps of {length:.1f} s: {faults or 'nothing differs'}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
