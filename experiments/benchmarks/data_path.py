"""Images per second of the data path beside torchvision's and timm's, from the same JPEGs with the same kind of crops.

    python experiments/benchmarks/data_path.py DIR [--rounds 7] [--workers 2] [--out data_path.md]

DIR/<class>/*.JPEG, or DIR/<split>/<class>/*.JPEG, are photographs; links to them make up 2,000 images. Each way reads
all of them once in turn, in an order that rotates from round to round: what disturbs the machine disturbs all.
Everybody takes a random-resized crop of 8 % to 100 % of the area to 224 pixels (bilinear, antialiased) and flips half
of them; batches of 128; workers that live on.
"ready" is normalised float32, ours cut into patches, on the CPU; "to a GPU" is uint8 as it leaves the worker, which a
GPU finishes. The crops of "ours" are the same in every row. A second table is where the time of one worker goes.
"""

import argparse
import cProfile
import datetime
import os
import platform
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import PIL
import pytorch_lightning as pl
import timm
import torch
import torchvision
from hydra import compose, initialize_config_dir
from timm.data import create_loader
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from vitlab.config.build import build
from vitlab.config.home import CONF
from vitlab.data.images import decoding
from vitlab.data.order.sampler import Key
from vitlab.data.sources.folder import EXTENSIONS
from vitlab.machine import cpu_capabilities, keep_freed_memory

BATCH, SIZE, SCALE = 128, 224, (0.08, 1.0)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def photographs(folder: Path) -> list[Path]:
    """All images in <class>/ or <split>/<class>/ below a folder, in an order that mixes the classes."""
    there = [*folder.glob("*/*"), *folder.glob("*/*/*")]
    files = [path for path in there if path.suffix.lower() in EXTENSIONS and path.is_file()]
    if not files:
        sys.exit(f"{folder} holds no photographs in folders of classes; give DIR with DIR/<class>/*.JPEG")
    return sorted(files, key=lambda path: (path.name, path.parent.name))


def link(files: list[Path], folder: Path, num_images: int) -> None:
    """Make so many links to the photographs below folder/train/<class>, and as few below val and test as there are
    classes."""
    copies = [("train", number, files[number % len(files)]) for number in range(num_images)]
    first = {file.parent.name: file for _, _, file in copies}
    copies += [(split, 0, file) for split in ("val", "test") for file in first.values()]
    for split, number, file in copies:
        target = folder / split / file.parent.name / f"{number:05d}{file.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(file.resolve(), target)


def torchvision_loader(folder: Path, workers: int) -> DataLoader:
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, scale=SCALE),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    dataset = ImageFolder(str(folder / "train"), transform)
    return DataLoader(dataset, BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True)


def timm_loader(folder: Path, workers: int) -> Any:
    return create_loader(
        ImageFolder(str(folder / "train")),
        input_size=(3, SIZE, SIZE),
        batch_size=BATCH,
        is_training=True,
        use_prefetcher=False,
        scale=SCALE,
        color_jitter=None,
        interpolation="bilinear",
        mean=MEAN,
        std=STD,
        num_workers=workers,
        persistent_workers=True,
    )


def datamodule(folder: Path, workers: int, *overrides: str) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(
            "train",
            overrides=[
                "model=vit_b16",
                "data=folder",
                f"data.source.root={folder}",
                "data.source.allow_outside=true",
                f"data.num_classes={len(os.listdir(folder / 'train'))}",
                f"data.image_size={SIZE}",
                "data.in_chans=3",
                "data.images.mode=RGB",
                f"data.mean={MEAN}",
                f"data.std={STD}",
                f"global_batch_size={BATCH}",
                f"data.loading.num_workers={workers}",
                f"crop.train.scale={list(SCALE)}",
                "crop.train.interpolation=bilinear",
                "crop.train.flip_rate=0.5",
                f"data.cache.root={folder / 'cache'}",
                "data.source.index_root=null",
                *overrides,
            ],
        )
    module = build(cfg.data, "data")
    module.trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    module.setup()
    return module


class Ours:
    """Batches of one way of ours; `finish` normalises and cuts them, `fast` decodes by simplejpeg."""

    def __init__(self, module: Any, *, finish: bool, fast: bool):
        self.module, self.finish = module, finish
        before = decoding.simplejpeg
        if not fast:
            decoding.simplejpeg = lambda: None  # type: ignore[assignment]
        self.loader = module.train_dataloader()
        next(iter(self.loader))  # workers start here, and keep what they were started with
        decoding.simplejpeg = before

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in self.loader:
            yield self.module.on_after_batch_transfer(batch, 0).view.inputs if self.finish else batch.view


def first_of_pair(loader: Any) -> Iterator[torch.Tensor]:
    for images, _ in loader:
        yield images


def rate(batches: Callable[[], Iterator[torch.Tensor]], least_seconds: float) -> float:
    """Images per second over whole epochs, at least one."""
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < least_seconds:
        for images in batches():
            count += len(images)
    return count / (time.perf_counter() - start)


def check(name: str, images: torch.Tensor, finished: bool) -> None:
    """A batch is what it should be: of this size, and, normalised, of these photographs' mean."""
    assert images.shape[0] == BATCH, name
    assert images[0].numel() == 3 * SIZE * SIZE, name
    if finished:
        assert images.dtype == torch.float32, name
        assert abs(images.mean().item()) < 0.5, name
        assert 0.5 < images.std().item() < 2, name


def profile(module: Any) -> str:
    """Where a worker's time goes: milliseconds of an image, by the function they are spent in."""
    images = min(512, len(module.training) // BATCH * BATCH)
    split, threads = module.training, torch.get_num_threads()
    torch.set_num_threads(1)
    keys = [Key(0, index) for index in range(images)]
    for start in range(0, images, BATCH):
        split.__getitems__(keys[start : start + BATCH])
    profiler = cProfile.Profile()
    profiler.enable()
    for start in range(0, images, BATCH):
        split.__getitems__(keys[start : start + BATCH])
    profiler.disable()
    torch.set_num_threads(threads)
    stats = pstats.Stats(profiler)
    rows = sorted(((entry[2], key[2], Path(key[0]).name) for key, entry in stats.stats.items()), reverse=True)[:6]
    whole = sum(entry[2] for entry in stats.stats.values())
    parts = "; ".join(f"{1000 * s / images:.3f} `{function}` ({file})" for s, function, file in rows)
    return f"{1000 * whole / images:.3f} ms: {parts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=1.0, help="the least that each way takes in a round")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    keep_freed_memory()  # as a run on a CPU does
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        link(photographs(arguments.photos), folder, arguments.images)
        workers = arguments.workers
        modules = {
            "originals": datamodule(folder, workers),
            "encoded cache": datamodule(folder, workers, "data.cache.kind=encoded", "data.cache.size=256"),
            "decoded cache": datamodule(folder, workers, "data.cache.kind=decoded", "data.cache.size=256"),
        }
        ours: dict[str, Ours] = {}
        for name, module in modules.items():
            for fast in (False, True) if name != "decoded cache" else (False,):
                decoder = ", extra fast" if fast else ", Pillow" if name != "decoded cache" else ""
                ours[f"ours, {name}{decoder}: ready"] = Ours(module, finish=True, fast=fast)
                ours[f"ours, {name}{decoder}: to a GPU"] = Ours(module, finish=False, fast=fast)
        plain, timms = torchvision_loader(folder, workers), timm_loader(folder, workers)
        ways: dict[str, Callable[[], Iterator[torch.Tensor]]] = {
            "ImageFolder, v2, DataLoader: ready": lambda: first_of_pair(plain),
            "timm create_loader: ready": lambda: first_of_pair(timms),
            **{name: way.__iter__ for name, way in ours.items()},
        }
        for name, batches in ways.items():
            for images in batches():  # a whole epoch: every worker is there, every file in the page cache
                check(name, images, name.endswith("ready"))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        names = list(ways)
        for number in range(arguments.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                rates[name].append(rate(ways[name], arguments.seconds))
        profiles = {name: profile(module) for name, module in modules.items()}
    base = rates[names[0]]
    lines = [
        f"{datetime.date.today()}, {cpu_capabilities().get('cpu_name', 'CPU')}, {workers} workers on {os.cpu_count()} "
        f"cores, Python {platform.python_version()}, torch {torch.__version__}, torchvision {torchvision.__version__}, "
        f"Pillow {PIL.__version__}, timm {timm.__version__}, {arguments.rounds} rounds.",
        "The table shows median images per second, then the median and the quartiles of the ratios within each round.",
        "",
        "| way | images/s | times ImageFolder |",
        "|---|---|---|",
    ]
    for name, values in rates.items():
        low, middle, high = statistics.quantiles([a / b for a, b in zip(values, base, strict=True)], n=4)
        lines.append(f"| {name} | {statistics.median(values):,.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) |")
    lines += ["", "A worker spends this time on one image, with the extra `fast`:", ""]
    lines += [f"- {name}: {text}" for name, text in profiles.items()]
    report = "\n".join(lines) + "\n"
    print(report)
    if arguments.out:
        arguments.out.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
