"""What a datamodule reads of a trainer: one process in the midst of training, unless told otherwise."""

from types import SimpleNamespace

import torch


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
