"""What a datamodule reads of a trainer: one process in the midst of training, unless told otherwise."""

from inspect import signature
from types import SimpleNamespace

import torch

from vitlab.data import Cache, ImageDataModule, Images, Loading, Order, Splits

KINDS = {"images": Images, "split": Splits, "order": Order, "loading": Loading, "cache": Cache}
BESIDE = {("cache", "kind"): "cache", ("cache", "root"): "cache_root", ("cache", "size"): "cache_size"}
BESIDE[("images", "mode")] = "image_mode"


def stand_in(**changes):
    settings = {
        "world_size": 1,
        "num_devices": 1,
        "global_rank": 0,
        "global_step": 0,
        "training": True,
        "validating": False,
        "sanity_checking": False,
        "accumulate_grad_batches": 1,
        "limit_train_batches": 1.0,
        "strategy": SimpleNamespace(root_device=torch.device("cpu")),
        "fit_loop": SimpleNamespace(epoch_loop=SimpleNamespace(batch_idx=-1)),
    }
    return SimpleNamespace(**settings | changes)


def datamodule_of(**options):
    """A datamodule, whose parts' keywords lie beside its own."""
    for part, kind in KINDS.items():
        names = {name: BESIDE.get((part, name), name) for name in signature(kind).parameters}
        options[part] = kind(**{name: options.pop(beside) for name, beside in names.items()})
    return ImageDataModule(**options)
