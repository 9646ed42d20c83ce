"""Runs of several processes, one after the other in the same processes: their start takes longer than a small run."""

import json
import os
import subprocess
import sys
import traceback
from functools import partialmethod
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"


def train_all(folder, runs, processes=2, seconds=280):
    """Train each of `runs` (name -> words) in `folder`/name, by so many processes; returns the status of each on the
    first of them. With compile=true all but the kernels is compiled."""
    from conftest import chosen

    runs = {name: chosen(*words) for name, words in runs.items()}
    (folder / "runs.json").write_text(json.dumps(runs), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", __file__]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    with open(folder / "log", "w") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, env=environment, timeout=seconds, check=False)
    ended = folder / "statuses.json"
    return json.loads(ended.read_text()) if ended.is_file() else {}


def main():
    sys.path.insert(0, str(SRC))
    import torch

    import train

    torch.nn.Module.compile = partialmethod(torch.nn.Module.compile, backend="aot_eager")
    statuses = {}
    for name, words in json.loads(Path("runs.json").read_text()).items():
        place = [] if any(word.startswith("resume=") for word in words) else [f"hydra.run.dir={name}"]
        sys.argv = ["train.py", *words, *place]
        statuses[name] = 0
        try:
            train.main()
        except SystemExit as error:
            statuses[name] = error.code
        except Exception:
            traceback.print_exc()
            statuses[name] = 1
        if os.environ["RANK"] == "0":
            Path("statuses.json").write_text(json.dumps(statuses), encoding="utf-8")


if __name__ == "__main__":
    main()
