"""Write the features of images to a file that also says what they are.

n images, D features, K classes
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from rich.console import Console
from torch import Tensor

from vitlab.atomic_files import write_atomically
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.targets import Texts
from vitlab.errors import ConfigError, StorageError
from vitlab.run.inference.frozen_model import FrozenModel
from vitlab.run.storage.output import RUNS, output_file
from vitlab.run.storage.provenance import versions

SUFFIXES = (".npz", ".safetensors")


def extract_features(cfg: DictConfig) -> Path:
    """Write features (n, D), labels (n,) or (n, K), names and splits of the images of cfg.split, class names and what
    made them to cfg.output. Raises ConfigError for an unknown split or suffix."""
    if Path(cfg.output).suffix not in SUFFIXES:
        raise ConfigError(f"output={cfg.output} ends in none of: {', '.join(SUFFIXES)}")
    place = output_file(cfg.output, "features", RUNS, "", overwrite=cfg.overwrite)
    if cfg.split not in ("all", *SPLITS):
        raise ConfigError(f"split '{cfg.split}' is not one of: all, {', '.join(SPLITS)}")
    frozen = FrozenModel.open(cfg)
    if isinstance(frozen.datamodule.targets, Texts):
        raise ConfigError(
            "features are stored with classes, but this data has images with a text each; choose another data="
        )
    splits = list(SPLITS) if cfg.split == "all" else [cfg.split]
    found = {split: frozen.features(split, cfg) for split in splits}
    numbers = {split: len(features.values) for split, features in found.items()}
    values, labels = (torch.cat([getattr(f, part) for f in found.values()]) for part in ("values", "target"))
    names = [frozen.datamodule.splits[s].name(i) for s, f in found.items() for i in f.places.tolist()]
    kind = [split for split, count in numbers.items() for _ in range(count)]
    about = {**frozen.facts, "versions": versions()}
    output = place.make()
    write = write_npz if output.suffix == ".npz" else write_safetensors
    write(output, values, labels, names, kind, list(frozen.datamodule.class_names), about)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(
        f"features   {values.shape[0]:,} of {values.shape[1]}: {', '.join(f'{s} {n:,}' for s, n in numbers.items())}"
    )
    skipped = sum(len(frozen.datamodule.splits[split]) for split in splits) - len(names)
    if skipped:
        console.print(f"skipped    {skipped} unreadable images")
    console.print(f"saved      {output}")
    return output


def write_npz(
    path: Path, values: Tensor, labels: Tensor, names: list[str], splits: list[str], class_names: list[str], about: Any
) -> None:
    """Write numpy's arrays, none of which needs pickle; `metadata` is JSON."""
    with write_atomically(path) as temporary, open(temporary, "wb") as file:
        np.savez(
            file,
            features=values.numpy(),
            labels=labels.numpy(),
            names=np.array(names),
            splits=np.array(splits),
            class_names=np.array(class_names),
            metadata=np.array(json.dumps(about)),
        )


def write_safetensors(
    path: Path, values: Tensor, labels: Tensor, names: list[str], splits: list[str], class_names: list[str], about: Any
) -> None:
    """Write tensors. `names` are the bytes of a JSON list, since the header, which holds all that is no tensor, is
    limited to 100 MB; `splits` are places in the header's list of that name; class_names and metadata are JSON in the
    header."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    kinds = list(dict.fromkeys(splits))
    tensors = {
        "features": values,
        "labels": labels,
        "names": torch.frombuffer(bytearray(json.dumps(names).encode()), dtype=torch.uint8),
        "splits": torch.tensor([kinds.index(split) for split in splits], dtype=torch.uint8),
    }
    header = {"splits": kinds, "class_names": class_names, "metadata": about}
    try:
        with write_atomically(path) as temporary:
            save_file(tensors, temporary, metadata={key: json.dumps(value) for key, value in header.items()})
    except SafetensorError as error:  # raised for a full disk, too
        raise StorageError(f"cannot write {path}: {error}") from error
