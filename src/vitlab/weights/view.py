"""Tell how images looked to the model that weights are of: fine-tuning gives it the same."""

import functools
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.checkpoints.run_folder import find_model
from vitlab.checkpoints.run_identity import read_checkpoint
from vitlab.errors import CheckpointError
from vitlab.weights import by_timm, hub
from vitlab.weights.own_run import fill_found, follow_reference

RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}  # Pillow's numbers
PROCESSOR = "preprocessor_config.json"  # Hugging Face's name for it


@dataclass(frozen=True)
class InputSettings:
    """Mean and standard deviation of each channel, of values in [0, 1]; pixels of a side; Pillow's name of the
    interpolation. None where the source does not say."""

    mean: list[float] | None = None
    std: list[float] | None = None
    image_size: int | None = None
    interpolation: str | None = None

    def get_stated(self) -> dict[str, Any]:
        """Give what the source says; mean and std only together."""
        known = {key: value for key, value in vars(self).items() if value is not None}
        return (
            known if {"mean", "std"} <= known.keys() else {k: v for k, v in known.items() if k not in ("mean", "std")}
        )


def find_view(name: str) -> InputSettings:
    """Tell what the source of weights `name` says of images, before anything of it is loaded. Files of the hub are
    there afterwards. Raises CheckpointError for a name that cannot be had."""
    kind, _, rest = name.partition(":")
    if kind == "timm" and rest:
        config = by_timm.load_config(rest)
        by_timm.find_file(config)
        return read_timm(config.to_dict())
    if kind == "hf" and rest:
        repository, _, revision = rest.partition("@")
        folder = hub.fetch(repository, ("config.json",), revision or None).parent
        with suppress(CheckpointError):  # not every model has one
            hub.fetch(repository, (PROCESSOR,), revision or None)
        return read_folder(folder)
    path = Path(name).expanduser()
    if path.is_dir() and (path / "config.json").is_file():
        return read_folder(path)
    if path.is_dir() or path.suffix == ".ckpt":
        checkpoint = find_model(path)
        return read_run(checkpoint, checkpoint.stat().st_mtime_ns)
    return (
        read_folder(path.parent)
        if path.is_file() and path.name in ("model.safetensors", "pytorch_model.bin")
        else InputSettings()
    )


def read_timm(config: dict[str, Any]) -> InputSettings:
    """Read what a pretrained_cfg of timm says."""
    size = config.get("input_size") or [None]
    return keep_valid(config.get("mean"), config.get("std"), size[-1], config.get("interpolation"))


def read_folder(folder: Path) -> InputSettings:
    """Read what timm's config.json, or Hugging Face's preprocessor_config.json says."""
    config, processor = (read_object(folder / name) for name in ("config.json", PROCESSOR))
    if config.get("pretrained_cfg"):
        return read_timm(config["pretrained_cfg"])
    vision = config.get("vision_config")
    sizes = [(vision if isinstance(vision, dict) else config).get("image_size")]
    for key in ("size", "crop_size"):
        size = processor.get(key)
        sizes.append(size.get("height", size.get("shortest_edge")) if isinstance(size, dict) else size)
    size = next((size for size in reversed(sizes) if type(size) is int), None)
    method = processor.get("resample")
    interpolation = RESAMPLING.get(method) if isinstance(method, int) else None
    return keep_valid(processor.get("image_mean"), processor.get("image_std"), size, interpolation)


def keep_valid(mean: Any, std: Any, image_size: Any, interpolation: Any) -> InputSettings:
    """Keep what a file of others says, as far as it is of the kind that it should be."""
    mean, std = (list(value) if isinstance(value, list | tuple) and value else None for value in (mean, std))
    size = image_size if type(image_size) is int else None
    return InputSettings(mean, std, size, interpolation if interpolation in RESAMPLING.values() else None)


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; nothing where there is none, or a damaged one, which loading tells."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@functools.lru_cache(maxsize=1)  # gigabytes, and a start asks twice
def read_run(checkpoint: Path, changed: int) -> InputSettings:
    """Read what the saved config of a run says, and what was found in its data. `changed`: when the file was."""
    config = fill_found(read_checkpoint(checkpoint)["run"]["config"])
    data = config["data"]
    mean, std, size = (follow_reference(data.get(key), config) for key in ("mean", "std", "image_size"))
    crop = ((config.get("crop") or {}).get("train") or {}).get("interpolation") or data.get("interpolation")
    return keep_valid(mean, std, size, crop)
