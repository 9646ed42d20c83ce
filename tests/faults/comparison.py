"""Compare what faults came to with what nobody disturbed."""

import csv
import json
from pathlib import Path

import torch

from vitlab.atomic_files import TEMPORARY
from vitlab.checkpoints import file
from vitlab.checkpoints.chain import CHAIN, digest_file, read_chain

TIMED = ("train/images_per_second", "train/seconds", "train/peak_memory_mib")
STATE = ("state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers", "sums", "loops")
HIDDEN = (".hydra", ".identity")


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def compare_runs(whole: Path, run: Path) -> list[str]:
    """What of a run is not as in the undisturbed one: tensors, counts, best model, results, rows of metrics; a chain
    whose lines do not follow from each other; temporary files that were left."""
    found = []
    states = [file.read(folder / "checkpoints" / "latest.ckpt") for folder in (whole, run)]
    found += [key for key in STATE if (key in states[0]) != (key in states[1])]
    found += [key for key in STATE if key in states[0] and not same(states[0][key], states[1].get(key))]
    best = [file.read(folder / "checkpoints" / "best.ckpt") for folder in (whole, run)]
    found += [f"best {key}" for key in ("state_dict", "score", "global_step") if not same(best[0][key], best[1][key])]
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, run)]
    found += [key for key in ("test", "last", "score", "best_step", "steps") if results[0][key] != results[1][key]]
    found += ["metrics.csv"] if rows(whole) != rows(run) else []
    json.loads((run / "provenance.json").read_text())
    line = [line for line in read_chain(run / CHAIN) if "step" in line][-1]
    digests = digest_file(run / "checkpoints" / "latest.ckpt")
    found += ["chain.jsonl"] if (line["step"], line["tensors"], line["file"]) != (steps_of(whole), *digests) else []
    hidden = [path.name for path in [*run.glob(".*"), *(run / "checkpoints").glob(".*")]]
    return found + [f"left behind: {name}" for name in hidden if name not in HIDDEN]


def rows(folder: Path) -> list[dict]:
    with open(folder / "metrics.csv", newline="") as lines:
        return [{name: one for name, one in row.items() if name not in TIMED} for row in csv.DictReader(lines)]


def steps_of(folder: Path) -> int:
    return json.loads((folder / "result.json").read_text())["steps"]


def compare_files(whole: Path, folder: Path) -> list[str]:
    """Files of a job that are missing, more, or of other bytes; but for temporary ones of a process that was killed,
    which stay beside a shared index: nobody knows whether another machine is writing them."""
    one, other = (
        {
            path.relative_to(top).as_posix(): path.read_bytes()
            for path in top.rglob("*")
            if path.is_file() and not (path.parent.name == "index" and TEMPORARY.fullmatch(path.name))
        }
        for top in (whole, folder)
    )
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
