"""Images of any source as patched batches for the trainer.

B batch, C channels, H W image height and width, P patch_size, N patches, K classes
"""

import os
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from PIL import Image
from torch.utils.data import DataLoader

from vitlab.counted import counted_seed
from vitlab.data.batch import Batch, Sample, collate
from vitlab.data.dataset import ImageSplit, Transform
from vitlab.data.mixing import Mixing
from vitlab.data.preprocessing import Preprocessing
from vitlab.data.sampler import EvaluationOrder, TrainingOrder
from vitlab.data.source import Pool, Source
from vitlab.data.splits import carve
from vitlab.errors import ConfigError, DataError

SPLITS = ("train", "val", "test")
MOST_WORKERS = 8


def divide_batch(global_batch_size: int, device_batch_size: int | None, world_size: int) -> tuple[int, int]:
    """(images a device takes at once, micro-batches it accumulates for one optimizer step).

    device_batch_size null: a device takes its whole share at once. Raises ConfigError for sizes that do not divide.
    """
    if global_batch_size < 1:
        raise ConfigError(f"global_batch_size {global_batch_size} is not at least 1")
    if device_batch_size is not None and device_batch_size < 1:
        raise ConfigError(f"data.device_batch_size {device_batch_size} is not at least 1; null is the whole share")
    if global_batch_size % world_size:
        raise ConfigError(f"global_batch_size {global_batch_size} is not a multiple of the {world_size} devices")
    share = global_batch_size // world_size
    size = device_batch_size or share
    if share % size:
        raise ConfigError(
            f"global_batch_size {global_batch_size} over {world_size} device(s) is {share} images each, which is not "
            f"a multiple of data.device_batch_size {size}"
        )
    return size, share // size


class ImageDataModule(pl.LightningDataModule):
    """Patched batches of the splits train, val and test.

    Workers give uint8 images; after the copy to the device a batch is normalised, mixed (training only) and cut into
    patches, or left as images when `patch_size` is null. Splits that the source does not bring are carved from its
    training pool, `val_fraction` and `test_fraction` of it. The order and the augmentation of training samples are
    functions of (seed, epoch, index), mixing of (seed, step, micro-batch, rank). Evaluation scores every sample once.

    `train_transform` and `eval_transform` take a PIL image in `image_mode` (PIL's names; null: as stored), or a uint8
    tensor, to image_size. `on_bad_image`: "error" raises DataError for a file that cannot be read, "skip" leaves it
    out and counts it in `skipped`. `num_workers` null: this process's share of the cores, at most 8.
    Raises ConfigError or DataError, in `setup`, when the source is not what the config says.
    """

    def __init__(
        self,
        *,
        source: Source,
        image_size: int,
        image_mode: str | None,
        in_chans: int,
        num_classes: int,
        mean: list[float],
        std: list[float],
        train_transform: Transform,
        eval_transform: Transform,
        val_fraction: float,
        test_fraction: float,
        patch_size: int | None,
        global_batch_size: int,
        device_batch_size: int | None,
        num_workers: int | None,
        on_bad_image: str,
        seed: int,
        mixing: Mixing | None = None,
    ):
        super().__init__()
        if on_bad_image not in ("error", "skip"):
            raise ConfigError(f"data.on_bad_image '{on_bad_image}' is not one of: error, skip")
        for key, fraction in {"val_fraction": val_fraction, "test_fraction": test_fraction}.items():
            if not 0 <= fraction < 1:
                raise ConfigError(f"data.{key} {fraction} is not in [0, 1)")
        if val_fraction + test_fraction >= 1:
            raise ConfigError(
                f"data.val_fraction {val_fraction} and data.test_fraction {test_fraction} leave nothing to train on"
            )
        if image_mode is not None and image_mode not in Image.MODES:
            raise ConfigError(f"data.image_mode '{image_mode}' is not a mode of Pillow; use L, RGB or null")
        channels = source.in_chans if image_mode is None else Image.getmodebands(image_mode)
        if channels is not None and channels != in_chans:
            raise ConfigError(
                f"data.in_chans is {in_chans}, but the images have {channels} channel(s); set data.in_chans={channels}"
                ", or convert every image with data.image_mode=L (1 channel) or data.image_mode=RGB (3 channels)"
            )
        self.preprocessing = Preprocessing(mean=mean, std=std, in_chans=in_chans, patch_size=patch_size)
        self.source = source
        self.image_size = image_size
        self.image_mode = image_mode
        self.in_chans = in_chans
        self.num_classes = num_classes
        self.train_transform = train_transform
        self.eval_transform = eval_transform
        self.val_fraction = val_fraction
        self.test_fraction = test_fraction
        self.global_batch_size = global_batch_size
        self.device_batch_size = device_batch_size
        self.num_workers = num_workers
        self.on_bad_image = on_bad_image
        self.seed = seed
        self.mixing = mixing
        self.splits: dict[str, ImageSplit] = {}
        self.fingerprint = ""
        self.test_split = "test"  # the split that trainer.test scores
        self.skipped: dict[str, set[str]] = {split: set() for split in SPLITS}

    # -- what there is

    def prepare_data(self) -> None:
        self.source.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Open the source, divide it into splits and check it against the config; the second call does nothing."""
        if self.splits:
            return
        pools = self.source.open()
        if len(self.source.class_names) != self.num_classes:
            raise ConfigError(
                f"data.num_classes is {self.num_classes}, but the data has {len(self.source.class_names)} classes; "
                f"set data.num_classes={len(self.source.class_names)}"
            )
        self.fingerprint = " ".join(f"{name}:{pool.fingerprint}:{len(pool)}" for name, pool in pools.items())
        self.splits = self._divide(pools)
        self._check_size()
        if self.steps_per_epoch == 0:
            raise ConfigError(
                f"global_batch_size {self.global_batch_size} is larger than the training split of "
                f"{len(self.splits['train'])} images; make it smaller"
            )

    def _divide(self, pools: dict[str, Pool]) -> dict[str, ImageSplit]:
        missing = {"val": self.val_fraction, "test": self.test_fraction}
        missing = {split: fraction for split, fraction in missing.items() if split not in pools}
        parts = carve(pools["train"].targets, {"train": 1 - sum(missing.values()), **missing})
        splits = {}
        for split in SPLITS:
            pool = pools["train"] if split in parts else pools[split]
            splits[split] = ImageSplit(
                pool,
                parts.get(split, np.arange(len(pool))),
                image_mode=self.image_mode,
                in_chans=self.in_chans,
                transform=self.train_transform if split == "train" else self.eval_transform,
                seed=self.seed,
            )
            if not len(splits[split]):
                key = f"data.{split}_fraction" if split in missing else "its folder"
                raise DataError(f"the {split} split holds no image; see {key}")
        return splits

    def _check_size(self) -> None:
        """Read one image of each split's kind: the transforms must give image_size, in in_chans channels."""
        for split in ("train", "val"):
            samples = (self.splits[split][(0, i)] for i in range(len(self.splits[split])))
            sample = next((s for s in samples if isinstance(s, Sample)), None)  # an unreadable one is met again later
            if sample is None:
                raise DataError(f"no image of the {split} split can be read")
            if sample.image.shape[-2:] != (self.image_size, self.image_size):
                height, width = sample.image.shape[-2:]
                raise ConfigError(
                    f"the {split} transform gives images of {height}x{width}, and data.image_size is {self.image_size}"
                )

    @property
    def class_names(self) -> list[str]:
        return self.source.class_names

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch; the tail of an epoch that does not fill a global batch is left out."""
        return len(self.splits["train"]) // self.global_batch_size

    def trained_steps_per_epoch(self) -> int:
        """Optimizer steps in one of the trainer's epochs, which trainer.limit_train_batches makes shorter."""
        trainer = self._trainer()
        batches = self.steps_per_epoch * trainer.accumulate_grad_batches
        limit = trainer.limit_train_batches
        batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        return -(-batches // trainer.accumulate_grad_batches)

    # -- loaders

    def train_dataloader(self) -> DataLoader:
        trainer = self._trainer()
        _, accumulation = divide_batch(self.global_batch_size, self.device_batch_size, trainer.world_size)
        order = TrainingOrder(
            len(self.splits["train"]),
            global_batch_size=self.global_batch_size,
            accumulation=accumulation,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            seed=self.seed,
            position=lambda: trainer.global_step,
        )
        return CountedLoader(**self._loader(self.splits["train"], order))

    def val_dataloader(self) -> DataLoader:
        return self.evaluation_loader("val")

    def test_dataloader(self) -> DataLoader:
        return self.evaluation_loader(self.test_split)

    def evaluation_loader(self, split: str) -> DataLoader:
        """Every sample of a split once, with the evaluation transform; this rank's share of it."""
        trainer = self._trainer()
        size, _ = divide_batch(self.global_batch_size, self.device_batch_size, trainer.world_size)
        order = EvaluationOrder(
            len(self.splits[split]), batch_size=size, rank=trainer.global_rank, world_size=trainer.world_size
        )
        return DataLoader(**self._loader(self.splits[split].with_transform(self.eval_transform), order))

    def _loader(self, dataset: ImageSplit, order: TrainingOrder | EvaluationOrder) -> dict[str, Any]:
        workers = self.num_workers
        if workers is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            workers = max(1, min(cores // self._trainer().world_size, MOST_WORKERS))
        return {
            "dataset": dataset,
            "batch_sampler": order,
            "num_workers": workers,
            "collate_fn": collate,
            "pin_memory": torch.cuda.is_available(),
            "persistent_workers": workers > 0,
            "worker_init_fn": one_thread,
        }

    # -- batches

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Judge the files that could not be read."""
        if batch.unreadable:
            if self.on_bad_image == "error":
                raise DataError(
                    f"cannot read {batch.unreadable[0]}; mend or remove the file, or set data.on_bad_image=skip"
                )
            if not len(batch.target) and self._trainer().training:
                raise DataError(f"no image of a whole batch can be read, the first is {batch.unreadable[0]}")
            self.skipped[self._split_in_use()].update(batch.unreadable)
        return batch

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """On the device: normalise, mix, cut. uint8 images (B, C, H, W) -> patches (B, N, C·P·P)."""
        if not len(batch.target):
            return batch
        self.preprocessing.to(batch.inputs.device)
        images, target = self.preprocessing.normalize(batch.inputs), batch.target
        trainer = self._trainer()
        if trainer.training and self.mixing is not None:
            micro_batch = (trainer.fit_loop.epoch_loop.batch_idx + 1) % trainer.accumulate_grad_batches
            seed = counted_seed("mixing", self.seed, trainer.global_step, micro_batch, trainer.global_rank)
            images, target = self.mixing(images, target, seed)
        inputs, grid = self.preprocessing.cut(images)
        return batch._replace(inputs=inputs, target=target, grid=grid)

    def _split_in_use(self) -> str:
        trainer = self._trainer()
        if trainer.validating or trainer.sanity_checking:
            return "val"
        return "train" if trainer.training else self.test_split

    def _trainer(self) -> pl.Trainer:
        assert self.trainer is not None, "a loader belongs to a trainer: rank, number of ranks, step"
        return self.trainer


class CountedLoader(DataLoader):
    """A DataLoader whose order counts its position: its own state is empty, and Lightning takes it as resumable."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def one_thread(worker: int) -> None:
    """A worker uses one thread: many of them share the cores."""
    torch.set_num_threads(1)
