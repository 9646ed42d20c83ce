"""Every benchmark runs to its end, at its smallest size: its figures then mean nothing."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitlab.config.home import EXPERIMENTS

BY_HAND = {"serving"}  # needs LitServe, which no lock has, and a bundle
FILES = sorted(file for file in (EXPERIMENTS / "benchmarks").glob("*.py") if file.stem not in BY_HAND)
BRIEF = ["data.source.num_lines=200", "data.source.num_evaluated=20", "trainer.max_epochs=1"]
BRIEF += ["~callbacks.evaluation_report", "~callbacks.batch_picture", "~callbacks.model_views"]
SMALLEST = {  # of each file; RUN, SWEEP and PHOTOS are made
    "accuracy_over_minutes": ["OUT.png", "short=RUN"],
    "attention": ["--rounds", "1", "--batch", "1", "--out", "OUT"],
    "bit_flips": ["--flips", "4", "--out", "OUT"],
    "curves_of_studies": ["OUT.png", "SWEEP"],
    "data_path": ["PHOTOS", "--images", "128", "--rounds", "2", "--seconds", "0", "--workers", "1", "--out", "OUT"],
    "decoding": ["--rounds", "1", "--out", "OUT"],
    "fit": ["--folders", "ten_digits", "--minutes", "--out", "OUT"],  # which draws a folder
    "last_digits": ["--steps", "1", "--ways", "float32", "--out", "OUT"],
    "int8": ["--rounds", "1", "--models", "vit_ti16", "--threads", "1", "--out", "OUT"],
    "million_files": ["PHOTOS", "--files", "10000", "--out", "OUT"],
    "reading": ["lines", "--seeds", "1", "--out", "OUT", "--also", *BRIEF],
    "step_profile": ["--batch", "1", "--out", "OUT"],
    "sweeps": ["--trials", "2", "--stubs", "2", "--out", "OUT"],
    "training_step": ["--rounds", "2", "--rows", "Ti/16", "--peers", "timm", "--batch", "2", "--out", "OUT"],
}


@pytest.fixture
def photos(tmp_path):
    """Photographs of two classes in a split, and a class that is a link to elsewhere."""
    random = np.random.RandomState(0)
    for folder in ("photos/train/cat", "photos/train/dog", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(5):
            pixels = random.randint(0, 256, (60, 80, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.JPEG")
    (tmp_path / "photos" / "train" / "hen").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "photos"


@pytest.fixture
def sweep(tmp_path):
    """What two values and two seeds have left."""
    jobs = [(depth, seed, f"depth-{depth}_seed-{seed}", "done") for depth in (1, 2) for seed in (0, 1)]
    write(tmp_path / "sweep" / "results.csv", [("model.depth", "seed", "folder", "status"), *jobs])
    for depth, seed, folder, _ in jobs:
        rows = [(step, 1 / (step + depth + seed), step / 20) for step in (5, 10)]
        write(tmp_path / "sweep" / folder / "metrics.csv", [("step", "val/loss", "val/exact"), (1, "", ""), *rows])
    return tmp_path / "sweep"


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_benchmark_comes_to_its_end(file, request, tmp_path):
    places = {"OUT": "out", "RUN": "short_run", "SWEEP": "sweep", "PHOTOS": "photos"}
    words = []
    for word in SMALLEST[file.stem]:
        for name, made in places.items():
            if name in word:
                place = tmp_path / made if name == "OUT" else request.getfixturevalue(made)
                word = word.replace(name, str(place))
        words.append(word)
    command = [sys.executable, str(file), *words]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, env=os.environ)
    assert run.returncode == 0, run.stderr
    (written,) = [path for path in (tmp_path / "out", tmp_path / "out.csv") if path.exists()]
    assert "nan" not in (said := written.read_text())
    assert any(character.isdigit() for character in said)


def test_every_benchmark_has_a_smallest_size():
    assert {file.stem for file in FILES} == SMALLEST.keys()
    assert not list(Path(EXPERIMENTS, "benchmarks").glob("*/*.py"))
