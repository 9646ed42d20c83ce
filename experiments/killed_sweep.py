"""A sweep that is killed, and goes on: make sweep. Two minutes on two cores; what it does is said line by line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUDY = ["study=learning_rate", "trainer=cpu", "logger=none", "~callbacks.model_views", "engine.slots=2"]


def said(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def typed(*words: str) -> list[str]:
    print(f"$ python src/{' '.join(words)}", flush=True)
    return [sys.executable, str(ROOT / "src" / words[0]), *words[1:]]


def saved(folder: Path) -> list[Path]:
    """The runs that are in their middle: a state is saved, and they have not ended."""
    states = folder.glob("*/checkpoints/latest.ckpt")
    return [path.parents[1] for path in states if not (path.parents[1] / "result.json").exists()]


def main(*words: str) -> None:
    name = time.strftime("killed_sweep_%H-%M-%S")
    folder, command = Path("runs", name), ["train.py", *STUDY, f"sweep={name}", *words]
    said("five learning rates, two at a time")
    sweeper = subprocess.Popen(typed(*command))
    while len(list(folder.glob("*/result.json"))) < 2 or not saved(folder):
        if sweeper.poll() is not None:
            sys.exit("the sweep ended before it could be killed")
        time.sleep(0.1)
    said("the sweeper is killed, as by kill -9, in the middle of its jobs")
    os.kill(sweeper.pid, signal.SIGKILL)
    sweeper.wait()
    time.sleep(2)
    subprocess.run(typed("sweeps.py", name), check=True)
    said("the same command again: what was done stays, what was killed goes on where it was")
    status = subprocess.run(typed(*command), check=False).returncode
    said("where each job was started from")
    for path in sorted(folder.glob("*/provenance.json")):
        print(
            f"{path.parent.name}: step {', '.join(str(start['from_step']) for start in json.loads(path.read_text()))}"
        )
    sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
