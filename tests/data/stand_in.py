"""What a datamodule reads of a trainer: one process in the midst of training, unless told otherwise."""

from types import SimpleNamespace

import torch

from vitlab.config.renamed import ROOMS
from vitlab.data import Cache, ImageDataModule, Images, Loading, Order, Splits

KINDS = {"images": Images, "split": Splits, "order": Order, "loading": Loading, "cache": Cache}


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
    """A datamodule, whose rooms' keywords lie beside its own, by the names that they had once."""
    for room, kind in KINDS.items():
        names = {new: old for new, old in ROOMS[room].items() if new != "_target_"}
        options[room] = kind(**{new: options.pop(old) for new, old in names.items()})
    return ImageDataModule(**options)
