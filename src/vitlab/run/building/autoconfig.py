"""Look at the data before anything is built, and find what the config leaves open, as it suits these images."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig
from PIL import Image

from vitlab.config.build import build
from vitlab.config.found import is_open
from vitlab.data.batches.batch_size import fitting_batch
from vitlab.data.glance import Glance, glance, in_small, spaced
from vitlab.data.images.decoding import MODES
from vitlab.data.targets import OneClass, Texts
from vitlab.features import is_mirror_invariant
from vitlab.run.building.model import weights_of

PHOTOGRAPH = 224  # pixels: more are not taken unless asked for
SMALL = 96  # pixels of a side, up to which images are no photographs
PATCHES = 8  # fewest patches in a row, for images with enough pixels
LOOKED_UP = ("image_size", "in_chans", "scale", "flip_rate", "interpolation", "global_batch_size")
COMPARED, IN_SMALL = 1000, 16  # images that are looked at in a mirror, and their pixels


def look(cfg: DictConfig, num_devices: int = 1) -> dict[str, Any]:
    """Find what cfg leaves open of image_size, channels and mode, of the training crop's scale, flips and
    interpolation, and of the global batch; with model.pretrained, also of mean and std, as the weights know images.
    Nothing is opened where nothing is open. Raises VitlabError for weights that are not to be had, and for data that
    cannot be opened or divided."""
    wanted = {key for key in LOOKED_UP if is_open(cfg, key)}
    if not wanted:
        return {}
    view = known_view(cfg)
    source = build(cfg.data.source, "data.source")
    source.prepare()
    if is_open(cfg, "mode") and source.in_chans is None:
        wanted.add("mode")
    divided = build(cfg.data.split, "data.split").divide(source.open(), cfg.seed, source.class_names)
    pool, indices = divided["train"]
    found: dict[str, Any] = {"interpolation": view.get("interpolation", "bicubic")}
    if wanted & {"image_size", "in_chans", "mode", "scale"}:
        found |= of_images(glance(pool, indices), cfg, source.in_chans, view)
    if len(view.get("mean", ())) == (found.get("in_chans") or cfg.data.get("in_chans")):
        found |= {key: view[key] for key in ("mean", "std")}
        wanted |= {key for key in ("mean", "std") if is_open(cfg, key)}
    if "flip_rate" in wanted:
        safe = not isinstance(pool.targets, Texts)
        if isinstance(pool.targets, OneClass):
            small, places = in_small(pool, spaced(indices, COMPARED), IN_SMALL)
            safe = is_mirror_invariant(small, pool.targets[places].collate(), len(source.class_names))
        found["flip_rate"] = 0.5 if safe else 0.0
    if "global_batch_size" in wanted:
        found["global_batch_size"] = fitting_batch(len(indices), cfg.data.device_batch_size, num_devices)
    return {key: value for key, value in found.items() if key in wanted}


def known_view(cfg: DictConfig) -> dict[str, Any]:
    """Tell what is known of the images that the weights which cfg starts from were trained on: mean, std, image_size,
    interpolation."""
    name = weights_of(cfg.model) if "model" in cfg else None
    if name is None:
        return {}
    from vitlab.weights import view_of

    return view_of(name).stated()


def of_images(seen: Glance, cfg: DictConfig, stored: int | None, view: Mapping[str, Any]) -> dict[str, Any]:
    """Give what suits images of this size and these colours, and the weights; `stored` is their number of channels,
    None: files differ."""
    mode, chans = cfg.data.images.mode, cfg.data.in_chans or len(view.get("mean", ()))
    chans = chans or (Image.getmodebands(mode) if mode else stored or (1 if seen.gray else 3))
    return {
        "image_size": view.get("image_size") or fitting_size(seen.side, cfg.data.patch_size),
        "in_chans": chans,
        "mode": MODES.get(chans),
        "scale": [0.25, 1.0] if seen.side > SMALL else [0.8, 1.0],
    }


def fitting_size(side: int, patch_size: int | None) -> int:
    """The pixels that images with this shorter side are brought to: their own, rounded to whole patches, but so many
    that a small image has 8 patches in a row where it has 4 pixels for each, and never fewer than 4."""
    side = min(side, PHOTOGRAPH)
    if patch_size is None:
        return max(side, 32)
    return patch_size * max(round(side / patch_size), min(PATCHES, max(round(side / 4), 4)))
