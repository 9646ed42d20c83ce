"""Find the values that a config leaves open, in its data and on this machine, before a run is built from it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from PIL import Image

from vitlab.config.build import build
from vitlab.config.found import fill_in, is_open
from vitlab.data import DataModule, ImageDataModule
from vitlab.data.batches.batch_size import choose_batch_size, divide_batch
from vitlab.data.glance import ImageSummary, choose_spaced, glance, shrink_images
from vitlab.data.images.decoding import MODES
from vitlab.data.pools.pool import OpenedSource
from vitlab.data.targets import OneClass, Texts
from vitlab.features import is_mirror_invariant
from vitlab.run.building.model import find_weights
from vitlab.run.building.parts import build_datamodule
from vitlab.run.building.trainer import Devices, find_run_precision
from vitlab.run.checks.preconditions import check_targets

PHOTOGRAPH, LEAST = 224, 32  # pixels: the largest image_size that is chosen, and the smallest without patches
SMALL = 96  # pixels of a side, up to which images are no photographs
PATCHES = 8  # fewest patches in a row, for images with enough pixels
IMAGE_OPTIONS = ("image_size", "in_chans", "scale", "flip_rate", "interpolation", "global_batch_size")
COMPARED, IN_SMALL = 1000, 16  # images that are compared with their mirror images, and their pixels


class ResolvedRun(NamedTuple):
    """The config of a run with every open value filled in, read-only; its data, opened; the values that were found, by
    the keys of `OPEN_KEYS`; one line on the measurement of the precision, if one was made; and why the images get their
    size, if it was found."""

    cfg: DictConfig
    datamodule: DataModule
    values: dict[str, Any]
    measured: str | None
    size_reason: str


def find_values(cfg: DictConfig, devices: Devices | None = None) -> ResolvedRun:
    """Open the data of a config once, and find every value that the config leaves open: image size, channels, crop and
    batch from some images, then classes, tokens, mean and std from all of them, then the precision from a timing.

    `devices` are those that train; without them the batch is for one device, and the precision is not looked for.
    Raises VitlabError for weights or data that cannot be opened, or do not suit the task.
    """
    source = OpenedSource(build(cfg.data.source, "data.source"))
    measured = None

    def fill() -> DictConfig:
        return fill_in(cfg, values)

    values, size_reason = find_image_options(cfg, source, devices.number if devices else 1)
    datamodule = build_datamodule(fill(), source)
    if devices is not None:
        batch_size, _ = divide_batch(datamodule.global_batch_size, datamodule.device_batch_size, devices.number)
    datamodule.setup()
    values |= datamodule.found
    if devices is not None:
        check_targets(fill(), datamodule)
        if isinstance(datamodule, ImageDataModule) and not cfg.get("found"):  # of a run that is resumed
            datamodule.check_readable()
        if is_open(cfg, "precision"):
            values["precision"], measured = find_run_precision(fill(), datamodule, batch_size, devices.own)
    final = fill()
    OmegaConf.set_readonly(final, True)
    return ResolvedRun(final, datamodule, values, measured, size_reason)


def find_image_options(cfg: DictConfig, source: OpenedSource, num_devices: int) -> tuple[dict[str, Any], str]:
    """Return what suits the training images, of the options that the config leaves open: image_size, channels and mode,
    scale, flips and interpolation of the training crop, and the global batch; with model.pretrained also mean and std,
    as the weights expect them. Beside them, return the reason for image_size, "" if it was given. With none open,
    nothing is opened. Raises VitlabError for weights that cannot be found, and for data that cannot be opened or
    divided."""
    wanted = {key for key in IMAGE_OPTIONS if is_open(cfg, key)}
    if not wanted:
        return {}, ""
    known, size_reason = find_preprocessing(cfg), ""
    if is_open(cfg, "mode") and source.in_chans is None:
        wanted.add("mode")
    divided = build(cfg.data.split, "data.split").divide(source.open(), cfg.seed, source.class_names)
    pool, indices = divided["train"]
    found: dict[str, Any] = {"interpolation": known.get("interpolation", "bicubic")}
    if wanted & {"image_size", "in_chans", "mode", "scale"}:
        seen = glance(pool, indices)
        found |= choose_shape(seen, cfg, source.in_chans, known)
        if "image_size" in wanted:
            size_reason = explain_size(seen.side, found["image_size"], cfg.data.patch_size, "image_size" in known)
    if len(known.get("mean", ())) == (found.get("in_chans") or cfg.data.get("in_chans")):
        found |= {key: known[key] for key in ("mean", "std")}
        wanted |= {key for key in ("mean", "std") if is_open(cfg, key)}
    if "flip_rate" in wanted:
        safe = not isinstance(pool.targets, Texts)
        if isinstance(pool.targets, OneClass):
            small, places = shrink_images(pool, choose_spaced(indices, COMPARED), IN_SMALL)
            safe = is_mirror_invariant(small, pool.targets[places].collate(), len(source.class_names))
        found["flip_rate"] = 0.5 if safe else 0.0
    if "global_batch_size" in wanted:
        found["global_batch_size"] = choose_batch_size(len(indices), cfg.data.device_batch_size, num_devices)
    return {key: value for key, value in found.items() if key in wanted}, size_reason


def find_preprocessing(cfg: DictConfig) -> dict[str, Any]:
    """Return mean, std, image_size and interpolation of the images that the weights of model.pretrained were trained
    on, as far as they are known."""
    name = find_weights(cfg.model) if "model" in cfg else None
    if name is None:
        return {}
    from vitlab.weights import find_view

    return find_view(name).get_stated()


def choose_shape(seen: ImageSummary, cfg: DictConfig, stored: int | None, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return image_size, channels, mode and the crop's scale for images of this size and colour, and for what the
    weights expect (`known`). `stored` is the number of channels in the files, None where they differ."""
    mode, chans = cfg.data.images.mode, cfg.data.in_chans or len(known.get("mean", ()))
    chans = chans or (Image.getmodebands(mode) if mode else stored or (1 if seen.gray else 3))
    return {
        "image_size": known.get("image_size") or choose_size(seen.side, cfg.data.patch_size),
        "in_chans": chans,
        "mode": MODES.get(chans),
        "scale": [0.25, 1.0] if seen.side > SMALL else [0.8, 1.0],
    }


def choose_size(side: int, patch_size: int | None) -> int:
    """Return the image_size for images with this shorter side: their own, rounded to whole patches, and at most 224. A
    small image is enlarged to 8 patches in a row if it has 4 pixels for each, and always to at least 4 patches."""
    side = min(side, PHOTOGRAPH)
    if patch_size is None:
        return max(side, LEAST)
    return patch_size * max(round(side / patch_size), min(PATCHES, max(round(side / 4), 4)))


def explain_size(side: int, size: int, patch_size: int | None, known: bool) -> str:
    """Say why images with this shorter side get their size; `known`: it is the size that the weights expect."""
    if size == side:
        return "image_size is the shorter side of the images"
    patches = (
        f": {size // patch_size} patches of {patch_size} in a row"
        if patch_size
        else f": between {LEAST} and {PHOTOGRAPH}"
    )
    return f"the shorter side of {side} pixels becomes {size}{', as for the weights' if known else patches}"
