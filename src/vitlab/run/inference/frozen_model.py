"""Open a model to look at as it is, and images to look at it with: a finished run's, or those of a config.

n images, D features
"""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from rich.progress import track
from torch import nn

from vitlab.config.job import Job
from vitlab.config.nodes import check_values, make_node, merge_node, resolve_config, resolve_value
from vitlab.config.redaction import Redaction
from vitlab.data import ImageDataModule
from vitlab.data.evaluation import evaluation_batches
from vitlab.data.images.decoding import MODES
from vitlab.errors import ConfigError
from vitlab.features import Features, extract, join_features
from vitlab.machine import find_fastest_device
from vitlab.out_of_memory import refuse_out_of_memory, suggest_half
from vitlab.run.building.autoconfig import find_values
from vitlab.run.building.model import build_model, load_pretrained
from vitlab.run.checks.preconditions import check_agreement, check_images
from vitlab.run.hardware.precision import is_bf16, speed_up_float32_products
from vitlab.run.inference.saved_run import SavedRun

SEEN = ("image_size", "in_chans", "mean", "std", "patch_size")  # how a run sees images, whatever they are


@dataclass(frozen=True)
class FrozenModel:
    """A model in evaluation mode on its device, the data it is shown, set up, and `facts` that describe both in plain
    types.

    `folder` is that of the run, None without one; `images` names the data set where it was chosen.
    """

    model: nn.Module
    datamodule: ImageDataModule
    device: torch.device
    facts: dict[str, Any]
    folder: Path | None
    images: str | None

    @classmethod
    def open(cls, cfg: DictConfig, few_labels: bool = False) -> "FrozenModel":
        """Open the model of `cfg.run`, a run folder or checkpoint, on its own images or those of data=, as it saw its
        own; without a run, that of model= on the images of data=. With `few_labels` data.split.labels_per_class holds.
        Raises ConfigError, CheckpointError or DataError."""
        is_bf16(cfg.precision)  # refuses another one now
        chosen = Job.current().choices.get("data")
        if cfg.run is not None:
            check_overrides()
            saved = SavedRun.open(cfg.run)
            check_images(saved.config.data)
            data = build_data_node(resolve_config(saved.config)["data"], cfg, chosen is not None)
            found = find_values(prepare_evaluation(make_node({"data": data}), few_labels))
            model = saved.task().model
            origin, node, folder = str(saved.path), resolve_config(saved.config)["model"], saved.folder
        else:
            if cfg.get("model") is None or cfg.get("data") is None:
                raise ConfigError("no model was given; give run=<run folder or checkpoint>, or model= and data=")
            check_values(cfg)
            check_agreement(cfg)
            check_images(cfg.data)
            found = find_values(prepare_evaluation(cfg, few_labels))
            pl.seed_everything(cfg.seed, workers=False, verbose=False)
            model = build_model(found.cfg.model)
            if (report := load_pretrained(model, found.cfg.model)) is not None:
                report.show()
            origin, node, folder = None, resolve_config(found.cfg)["model"], None
        datamodule, data = found.datamodule, resolve_config(found.cfg)["data"]
        assert isinstance(datamodule, ImageDataModule)
        device = find_fastest_device()
        speed_up_float32_products(device)
        facts = {
            "checkpoint": origin,
            "model": node,
            "source": data["source"],
            "fingerprint": datamodule.fingerprint,
            "preprocessing": {**{key: data[key] for key in SEEN}, "eval_crop": data["images"]["eval_crop"]},
            "precision": cfg.precision,
        }
        return cls(model.to(device).eval(), datamodule, device, Redaction(cfg)(facts), folder, chosen)

    def features(self, split: str, cfg: DictConfig) -> Features:
        """Extract the features of every readable image of a split, in its order, with a progress bar."""
        batches = evaluation_batches(self.datamodule, split, batch_size=cfg.batch_size, device=self.device)
        total = -(-len(self.datamodule.splits[split]) // cfg.batch_size)
        reduced = torch.autocast(self.device.type, torch.bfloat16) if is_bf16(cfg.precision) else nullcontext()
        quiet = not sys.stdout.isatty()
        told = track(batches, total=total, description=f"features of {split}", transient=True, disable=quiet)
        with refuse_out_of_memory(lambda: suggest_half("batch_size", cfg.batch_size)), reduced:
            return join_features(extract(self.model, told))


def check_overrides() -> None:
    """Raise ConfigError for what cannot be chosen beside run=, which brings it."""
    for override in Job.current().overrides:
        key = override.lstrip("+~").split("=")[0]
        head, _, name = key.partition(".")
        if head in ("model", "crop") or (head == "data" and name.split(".")[0] in (*SEEN, "images")):
            raise ConfigError(f"{key} cannot be set with run=; leave it out, or give model= and data= instead of run=")


def build_data_node(own: dict[str, Any], cfg: DictConfig, chosen: bool) -> dict[str, Any]:
    """Give the data node of a run, changed by the keys of cfg.data; or, where a data set was chosen, that one's node,
    with images brought to the shape and the colours that the run knows."""
    if not chosen:
        return resolve_config(merge_node(make_node(own), cfg.get("data") or {}))
    view = {key: own[key] for key in SEEN}
    view["images"] = {**own["images"], "mode": own["images"]["mode"] or MODES.get(own["in_chans"])}
    others = (key for key in cfg.data if key not in {*view, "cache"})
    return {**{str(key): resolve_value(cfg.data[key]) for key in others}, **view, "cache": own["cache"]}


def prepare_evaluation(cfg: DictConfig, few_labels: bool) -> DictConfig:
    """Return the config with data that is only evaluated: without what is done to training images, without a cache, in
    its own order. data.split.labels_per_class holds with `few_labels` alone."""
    data: dict[str, Any] = {
        "images": {"train_transform": None},
        "global_batch_size": 1,
        "device_batch_size": None,
        "order": {"class_balance": 0.0, "shuffle_window": None},
        "cache": {"kind": "none", "size": 1},
    }
    changed = merge_node(cfg, {"data": data if few_labels else {**data, "split": {"labels_per_class": None}}})
    OmegaConf.update(changed, "data.images.train_crop", "${data.images.eval_crop}", merge=False)
    return changed
