"""A task that knows no classes: it writes the name of each digit. Its target is a text all the way from the source."""

from functools import partial

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from conftest import vit_options
from test_views import box, datamodule

from vitlab.data import Digits, Mixing
from vitlab.data.targets import Texts
from vitlab.errors import ConfigError
from vitlab.models import VisionTransformer
from vitlab.optim import Optimization, constant
from vitlab.tasks.task import Task

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LONGEST, ALPHABET = 5, 27  # a space after the end, and 26 letters


class Named(Digits):
    """The digits, each with its name to be written."""

    def __init__(self):
        self.class_names = []

    def open(self):
        pools = super().open()
        for pool in pools.values():
            pool.targets = Texts([NAMES[k] for k in pool.targets.tolist()])
        return pools


class Echo(Task):
    """Writes all characters at once."""

    def wanted(self, batch):
        codes, lengths = batch.target
        places = torch.arange(LONGEST, device=codes.device)
        letters = F.pad(codes, (0, LONGEST - codes.shape[1])) - ord("a") + 1
        return torch.where(places < lengths[:, None], letters, 0)  # (B, LONGEST)

    def written(self, batch):
        return self.model(*batch.view.arguments()).view(-1, LONGEST, ALPHABET)

    def training_losses(self, batch):
        return F.cross_entropy(self.written(batch).transpose(1, 2), self.wanted(batch), reduction="none").mean(dim=1)

    def evaluate_batch(self, batch, stage):
        right = (self.written(batch).argmax(dim=2) == self.wanted(batch)).all(dim=1)
        return 1 - right.float(), {}  # the share of names with a wrong letter


def parts(**data):
    torch.manual_seed(0)
    rates = {"layer_decay": 1.0, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    rates |= {"unfreeze_step": None, "hidden_only": False, "weight_decay": 0.0, "lr_scaling": "none"}
    sizes = {"lr": 3e-3, "lr_scaling_batch": 256, "global_batch_size": 32}
    task = Echo(
        model=VisionTransformer(**vit_options(image_size=16, num_classes=LONGEST * ALPHABET)),
        optimization=Optimization(algorithm=torch.optim.AdamW, **sizes, **rates),
        schedule=partial(constant, warmup_ratio=0.0, warmup_steps=None),
        monitor="val/loss",
        seed=0,
    )
    small = {"num_classes": None, "test_fraction": 0.2, "train_crop": box(16, [0.6, 1.0])}
    return task, datamodule(**{"source": Named()} | small | data)


def trained(task, module, folder, max_steps, resume=None):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saving = pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=4, save_top_k=-1, filename="{step}")
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=max_steps,
        callbacks=[saving],
        num_sanity_val_steps=0,
        **quiet,
    )
    module.attach(trainer)
    task.plan(module.plan(), module, {})
    trainer.fit(task, datamodule=module, ckpt_path=resume)
    return {name: value.clone() for name, value in task.state_dict().items()}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"num_workers": 2},
        pytest.param({"cache": "device"}, marks=pytest.mark.slow),
    ],
    ids=["alone", "ring", "device"],
)
def test_names_are_learned_and_a_resumed_run_is_the_uninterrupted_one(tmp_path, how):
    whole = trained(*parts(**how), tmp_path / "whole", 12)
    task, module = parts(**how)
    trained(task, module, tmp_path / "cut", 8)
    resumed = trained(*parts(**how), tmp_path / "again", 12, resume=tmp_path / "cut" / "step=4.ckpt")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.slow
def test_the_names_of_unseen_digits_are_written(tmp_path):
    task, module = parts()
    trained(task, module, tmp_path, 400)
    batches = (module.preprocessing.finish_batch(batch) for batch in module.val_dataloader())
    with torch.no_grad():
        wrong = torch.cat([task.eval().evaluate_batch(batch, "val")[0] for batch in batches])
    assert wrong.mean() < 0.3


def test_texts_are_not_mixed_and_have_no_classes():
    mixing = Mixing(rate=1.0, cutmix_rate=0.0, mixup_alpha=0.2, cutmix_alpha=1.0)
    with pytest.raises(ConfigError, match=r"images with a text each cannot be mixed; set mixing=none"):
        parts(mixing=mixing)
    with pytest.raises(ConfigError, match=r"num_classes is 10, but this data has images with a text each"):
        parts(num_classes=10)
