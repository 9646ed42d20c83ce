"""Measure how well `fit` keeps its time, and what it reaches, on four folders: digits, CIFAR-10, textures, ten a class.

    python experiments/benchmarks/fit.py --minutes 2 10 20 --cifar10 DIR --out OUT

OUT/images holds the folders that are drawn, OUT/fits the fits, OUT/fit.md the table. DIR holds CIFAR-10 as image files,
train/<class>/* and test/<class>/*; without it, CIFAR-10 is left out. --alone also gives each recipe the same minutes by
itself, to compare with the choice. Nothing else should run on the machine.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from vitlab.atomic_files import write_whole
from vitlab.data import Digits
from vitlab.machine import describe_cpu
from vitlab.reports.tables import format_markdown

FIT = Path(__file__).parents[2] / "src" / "fit.py"
TEXTURES = ("stripes", "waves", "checks", "rings", "wiggles")
SIDE, EACH, TEN = 96, 200, 10  # pixels of a texture; textures of a class; digits of a class in the small folder


def draw_texture(kind: str, random: np.random.RandomState) -> Image.Image:
    """Draw a pattern of random direction, width, colours and noise."""
    angle, rate, phase = random.uniform(0, np.pi), random.uniform(0.15, 0.5), random.uniform(0, 2 * np.pi)
    y, x = np.mgrid[:SIDE, :SIDE]
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    corner = random.uniform(0, SIDE, 2)
    pattern = {
        "stripes": np.sin(u * rate + phase),
        "waves": np.sin(u * rate + phase) * np.sin(v * rate),
        "checks": np.sign(np.sin(u * rate + phase) * np.sin(v * rate)),
        "rings": np.sin(np.hypot(x - corner[0], y - corner[1]) * rate),
        "wiggles": np.sin(u * rate + phase + 2 * np.sin(v * rate * 0.7)),
    }[kind]
    first, second = random.uniform(0, 1, (2, 3))
    share = (pattern[..., None] + 1) / 2
    colours = share * first + (1 - share) * second + random.randn(SIDE, SIDE, 3) * random.uniform(0.05, 0.25)
    return Image.fromarray((255 * colours.clip(0, 1)).astype(np.uint8))


def draw_textures(root: Path, count: int) -> None:
    random = np.random.RandomState(0)
    for kind, number in itertools.product(TEXTURES, range(count)):
        (root / kind).mkdir(parents=True, exist_ok=True)
        draw_texture(kind, random).save(root / kind / f"{number:03}.png")


def write_digits(root: Path, count: int | None) -> None:
    """Write scikit-learn's digits as PNGs of 8x8, all of them or the first ones of each class."""
    pool = Digits().open()["train"]
    labels = np.asarray(pool.targets.values)
    for label in range(10):
        (root / str(label)).mkdir(parents=True, exist_ok=True)
        for place in np.flatnonzero(labels == label)[:count]:
            Image.fromarray(np.squeeze(pool.load(int(place)))).save(root / str(label) / f"{place:04}.png")


def run_fit(folder: Path, minutes: float, output: Path, words: list[str]) -> dict[str, object]:
    """Run the command as a user does, and return a row of the table."""
    command = [sys.executable, str(FIT), f"data.source.root={folder}", f"minutes={minutes}", f"output={output}", *words]
    begun = time.monotonic()
    subprocess.run(command, check=True)
    seconds = time.monotonic() - begun
    ledger = json.loads((output / "fit.json").read_text())
    test = json.loads((output / "model" / "result.json").read_text())["test"]
    return {
        "folder": folder.name,
        "minutes": minutes,
        "recipe": ledger["plan"]["candidate"],
        "tried": ", ".join(ledger["speeds"]),
        "test accuracy": f"{test['test/acc1']:.2%}",
        "minutes taken": f"{seconds / 60:.2f}",
        "off by": f"{seconds / 60 / minutes - 1:+.1%}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", nargs="*", default=["digits", "textures", "ten_digits", "cifar10"])
    parser.add_argument("--minutes", nargs="*", type=float, default=[2, 10, 20])
    parser.add_argument("--cifar10", type=Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    made = {
        "digits": lambda root: write_digits(root, None),
        "ten_digits": lambda root: write_digits(root, TEN),
        "textures": lambda root: draw_textures(root, EACH),
    }
    images = options.out / "images"
    for name in made.keys() & set(options.folders):
        if not (images / name).is_dir():
            made[name](images / name)
    places = {name: images / name for name in made} | ({"cifar10": options.cifar10} if options.cifar10 else {})
    rows = []
    for name, minutes in itertools.product(options.folders, options.minutes):
        if name not in places:
            continue
        output = options.out / "fits" / f"{name}_{minutes:g}"
        rows.append(run_fit(places[name], minutes, output, []))
        tried = str(rows[-1]["tried"]).split(", ") if options.alone else []
        for recipe in tried:
            alone = output.with_name(f"{output.name}_{recipe}")
            rows.append(run_fit(places[name], minutes, alone, [f"candidates=[{recipe}]"]))
        write_whole(options.out / "fit.md", f"{describe_cpu()}\n\n{format_markdown(rows)}\n".encode())


if __name__ == "__main__":
    main()
