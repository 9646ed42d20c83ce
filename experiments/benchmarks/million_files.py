"""A data set of a million image files: seconds to its first batch, and what its names cost each worker.

    python experiments/benchmarks/million_files.py DIR [--files 1000000] [--out million_files.md]

DIR/<class>/*.JPEG, or DIR/<split>/<class>/*.JPEG, are photographs; a million links to them in 1,000 class folders are
the data set. Every start is a process of its own, timed from the moment at which the libraries are imported to the
first batch of 64 from two workers.
Then both workers read the names of 200,000 images drawn at random, and the memory that is a worker's own (USS) is read
before and after; beside them workers whose data set holds a list of Python strings, as torchvision's ImageFolder does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from data_path import datamodule, photographs
from torch.utils.data import DataLoader, Dataset, get_worker_info

CLASSES, BATCH, READ = 1000, 64, 200_000


class Names(Dataset):
    """Reads names at random, and tells what memory is the worker's own, in MB."""

    def __init__(self, name: Any, count: int):
        self.name, self.count = name, count

    def __len__(self) -> int:
        return 2

    def __getitem__(self, k: int) -> tuple[float, float]:
        assert get_worker_info() is not None
        before = own_memory()
        for i in np.random.default_rng(k).integers(0, self.count, READ).tolist():
            assert self.name(i)
        return before, own_memory()


def own_memory() -> float:
    """MB that this process shares with no other."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1000


def growth(name: Any, count: int) -> list[float]:
    """By how many MB each of two workers grows."""
    loader = DataLoader(Names(name, count), batch_size=None, num_workers=2)
    return [round(float(after - before), 1) for before, after in loader]


def first_batch(folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    module = datamodule(folder, 2, f"data.source.index_root={folder / 'index'}", f"global_batch_size={BATCH}")
    opened = time.perf_counter()
    batch = next(iter(module.train_dataloader()))
    assert len(batch.view) == BATCH
    done = time.perf_counter()
    split = module.training
    return {
        "images": len(split),
        "opened": round(opened - start, 2),
        "first batch": round(done - start, 2),
        "workers": growth(split.name, len(split)),
        "list": growth([split.name(i) for i in range(len(split))].__getitem__, len(split)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--start", action="store_true", help=argparse.SUPPRESS)  # one start, in a process of its own
    arguments = parser.parse_args()
    if arguments.start:
        print(json.dumps(first_batch(arguments.photos)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        photos = [path.resolve() for path in photographs(arguments.photos)]
        for number in range(CLASSES):
            place = folder / "train" / f"class_{number:04d}"
            place.mkdir(parents=True)
            for i in range(number, arguments.files, CLASSES):
                os.symlink(photos[i % len(photos)], place / f"image_{i:07d}.JPEG")
        time.sleep(3)  # a folder that has just changed is not indexed
        command = [sys.executable, __file__, str(folder), "--start"]
        starts = [
            json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
            for _ in range(2)
        ]
    lines = [
        f"{arguments.files:,} links to photographs in {CLASSES:,} folders, {os.cpu_count()} cores.",
        "",
        "| start | data set opened, s | first batch, s | growth of each worker, MB | with a list of strings, MB |",
        "|---|---|---|---|---|",
    ]
    for name, start in zip(("first", "second, from the index"), starts, strict=True):
        lines.append(f"| {name} | {start['opened']} | {start['first batch']} | {start['workers']} | {start['list']} |")
    report = "\n".join(lines) + "\n"
    print(report)
    if arguments.out:
        arguments.out.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
