"""CIFAR-10 from scratch, for as many epochs as there is time: recipe=cifar10 on images that the device holds."""

import json
import time
from pathlib import Path

import numpy as np
from PIL import Image
from program import overrides, train
from step import Assignment, Found, UnavailableError

RESERVE = 20  # seconds for the start of the run and its test


def learn(given: Assignment) -> Found:
    scale = given.scale
    images, began = given.cifar10, time.monotonic()
    if images is None:
        if scale.device == "cuda":
            raise UnavailableError("no images; --cifar10 DIR says where they lie")
        images = noise(given.folder / "images")
    options = ["recipe=cifar10", "data=cifar10_folder", f"data.source.root={images}", "augmentation=none"]
    options += ["data.cache.kind=device", f"data.source.index_root={given.folder / 'index'}", "data.num_classes=10"]
    options = overrides(scale, given.folder, *options, *(() if scale.device == "cuda" else scale.small))
    trial = train(given.folder / "trial", [*options, "trainer.max_epochs=2"])  # how long an epoch takes
    first, second = (row["train/seconds"] for row in trial if "val/acc1" in row.values)
    left = given.seconds - (time.monotonic() - began) - RESERVE
    epochs = max(1, min(int(left / (second - first)), scale.most_epochs))
    run = train(given.folder / "run", [*options, f"trainer.max_epochs={epochs}"])
    curve = [(round(row["epoch"]), row["val/acc1"]) for row in run if "val/acc1" in row.values]
    accuracy = json.loads((given.folder / "run" / "result.json").read_text())["test"]["test/acc1"]
    seconds = max(row["train/seconds"] for row in run if "train/seconds" in row.values)
    figure = f"{accuracy:.2%} on the test images after {epochs} epochs in {seconds:.0f} s"
    assert epochs < 10 or accuracy >= scale.least_accuracy, figure
    lines = ["| epoch | val/acc1 |", "|---|---|", *(f"| {epoch} | {value:.2%} |" for epoch, value in sampled(curve))]
    return Found(figure, {"accuracy": accuracy, "epochs": epochs, "seconds": seconds, "curve": curve}, tuple(lines))


def sampled(curve: list[tuple[int, float]], most: int = 20) -> list[tuple[int, float]]:
    """At most so many points of a curve, evenly spaced, with the first and the last."""
    return [curve[i] for i in sorted({round(i) for i in np.linspace(0, len(curve) - 1, most)})]


def noise(folder: Path) -> Path:
    """A few images without a meaning, laid out as those of CIFAR-10."""
    random = np.random.RandomState(0)
    for split, count in (("train", 30), ("test", 3)):
        for number in range(10):
            place = folder / split / f"class_{number}"
            place.mkdir(parents=True)
            for k in range(count):
                Image.fromarray(random.randint(0, 256, (32, 32, 3), dtype=np.uint8)).save(place / f"{k}.jpg")
    return folder
