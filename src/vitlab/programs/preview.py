"""Draw a training batch before training: what the model will see.

C channels, H W image height and width
"""

import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig
from rich.console import Console
from torch import Tensor

from vitlab.callbacks.batch_picture import COLUMNS, batch_figure
from vitlab.callbacks.figures import image_grid, write_figure
from vitlab.config.job import Job
from vitlab.data import ImageDataModule
from vitlab.data.batches.batch import Batch, Sample
from vitlab.data.images.resampling import make_tensor
from vitlab.data.order.sampler import Key
from vitlab.errors import ConfigError
from vitlab.run.building.autoconfig import ResolvedRun, find_values
from vitlab.run.checks.preconditions import check_agreement, check_images
from vitlab.run.printing.console import classes, format_found
from vitlab.run.storage.output import RUNS, output_folder


def preview(cfg: DictConfig) -> list[Path]:
    """Draw the first training batch into cfg.output, and, with `same`, its first samples in several epochs."""
    if cfg.resume is not None:
        raise ConfigError("preview shows a composed config, not a run; leave out resume=")
    output = output_folder(cfg.output, "preview", RUNS / "preview" / cfg.name, overwrite=cfg.overwrite)
    check_agreement(cfg)
    check_images(cfg.data)
    found = find_values(cfg)
    cfg, datamodule = found.cfg, found.datamodule
    patch = cfg.data.patch_size
    if patch is not None and cfg.data.image_size % patch:
        raise ConfigError(f"data.image_size {cfg.data.image_size} is not a multiple of model.patch_size {patch}")
    assert isinstance(datamodule, ImageDataModule)
    batch = first_batch(datamodule, cfg)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for name, fact in facts(datamodule, found).items():
        console.print(f"{name:<13}{fact}")
    heading = "the first training batch as the model sees it"
    figures = {"batch": batch_figure(datamodule, batch, cfg.num_images, heading)}
    if cfg.same:
        images, titles = same_samples(datamodule, batch.index[: cfg.same].tolist())
        heading = "samples as they are stored, and in the first epochs, before mixing"
        figures["same"] = image_grid(images, titles, columns=COLUMNS, heading=heading)
    folder = output.make()
    paths = [write_figure(figure, folder / f"{name}.png") for name, figure in figures.items()]
    console.print(f"{'pictures':<13}{', '.join(map(str, paths))}")
    return paths


def first_batch(datamodule: ImageDataModule, cfg: DictConfig) -> Batch:
    """Make the batch that a single device gets at step 0."""
    datamodule.attach(make_trainer(cfg))
    datamodule.plan()
    batch = datamodule.on_before_batch_transfer(next(iter(datamodule.train_dataloader(in_this_process=True))), 0)
    return datamodule.on_after_batch_transfer(batch, 0)


def make_trainer(cfg: DictConfig) -> pl.Trainer:
    """Give a datamodule what it asks a trainer for: rank, ranks, step and the length of the run; nothing is trained."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=cfg.trainer.max_epochs,
        max_steps=cfg.trainer.max_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.training = True
    return trainer


def same_samples(datamodule: ImageDataModule, indices: list[int]) -> tuple[list[Tensor], list[str]]:
    """Draw images (C, H, W) in [0, 1] with titles: each sample as it is stored, then as in the first epochs."""
    split = datamodule.training
    images, titles = [], []
    for index in indices:
        picture = split.pictures([Key(0, index)])[0]
        assert not isinstance(picture, Exception), "it is in the batch: it can be read"
        stored = make_tensor(picture.pixels()[0])
        images.append(stored / 255)
        titles.append(f"{split.words(index, datamodule.class_names)}\n{stored.shape[2]}x{stored.shape[1]}")
        for epoch in range(COLUMNS - 1):
            sample = split[Key(epoch, index)]
            assert isinstance(sample, Sample)
            images.append(sample.views[0] / 255)
            titles.append(f"epoch {epoch}")
    return images, titles


def facts(datamodule: ImageDataModule, found: ResolvedRun) -> dict[str, str]:
    """List what a user wants to know of the data before a run."""
    splits = datamodule.splits
    choices: dict[str, Any] = Job.current().choices
    crop = datamodule.images.train_crop
    size = crop.output_size()
    pixels = "mixed sizes" if size is None else f"{size[1]}x{size[0]} pixels"
    return {
        "images": ", ".join(f"{name} {len(split):,}" for name, split in splits.items()),
        "classes": classes(datamodule),
        **({"found": format_found(found.values, found.size_reason)} if found.values else {}),
        "steps": f"{datamodule.steps_per_epoch:,} of {datamodule.global_batch_size} images in an epoch",
        "crop": f"{type(crop).__name__}, {pixels}, {datamodule.in_chans} channel(s)",
        "augmentation": f"{choices['augmentation']}, mixing {choices['mixing']}",
        "cache": datamodule.cache.kind,
    }
