"""Images of any source as patched batches for the trainer.

B batch, C channels, H W image height and width, P patch_size, N patches, K classes
"""

from pathlib import Path

import numpy as np
import pytorch_lightning as pl
from torchvision.transforms import v2

from vitlab.data.batches.batch import Batch
from vitlab.data.batches.batch_size import divide_batch, largest_share
from vitlab.data.batches.mixing import Mixing
from vitlab.data.batches.preprocessing import Preprocessing
from vitlab.data.batches.raw_batch import RawBatch
from vitlab.data.batches.resolution import ProgressiveResolution
from vitlab.data.cache import CACHES, CropBatch, DeviceImages
from vitlab.data.checks import (
    ON_BAD_IMAGE,
    at_least,
    check_channels,
    check_crop,
    check_fractions,
    check_image_size,
    check_machine,
    check_order,
    check_targets,
    check_views,
    one_of,
)
from vitlab.data.delivery import Reading
from vitlab.data.images.augmentation import check_augmentation
from vitlab.data.images.crops import Crop
from vitlab.data.loading.dataset import ImageSplit, Transform
from vitlab.data.loading.loader import Loader, workers_for
from vitlab.data.order.sampler import EvaluationOrder, TrainingOrder, class_shares
from vitlab.data.pools.packed_names import readable
from vitlab.data.pools.pool import Pool, Source
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.pools.splits import divide, few_of_each
from vitlab.data.run_length import planned_steps
from vitlab.data.targets import Classes, Targets
from vitlab.errors import ConfigError, DataError
from vitlab.seeding import counted_seed

WorkerBatch = RawBatch | CropBatch


class ImageDataModule(pl.LightningDataModule):
    """Patched batches of the splits train, val and test.

    Workers give uint8 images; after the copy to the device a batch is normalised, mixed (training only) and cut into
    patches, or left as images when `patch_size` is null. Splits that the source does not bring are carved from its
    training pool, `val_fraction` and `test_fraction` of it. The order and the augmentation of training samples are
    functions of (seed, epoch, index), mixing of (seed, step, micro-batch, rank). Evaluation scores every sample once.

    A crop takes part of an image and brings it to image_size; `train_transform`, then `augmentation`, change that as a
    PIL image in `image_mode` (PIL's names; null: as stored), or as a uint8 tensor where PIL has no such image.
    `resolution` changes the size that training crops have, by step. `on_bad_image`: "error" raises DataError for a file
    that cannot be read, "skip" leaves it out and counts it in `skipped`. conf/data/_images.yaml says what the other
    keys mean. Raises ConfigError or DataError, in `setup`, when the source is not what the config says.
    """

    def __init__(
        self,
        *,
        source: Source,
        image_size: int,
        image_mode: str | None,
        in_chans: int,
        num_classes: int | None,
        mean: list[float],
        std: list[float],
        train_crop: Crop,
        eval_crop: Crop,
        train_transform: Transform | None,
        cache: str,
        cache_root: str,
        cache_size: int,
        val_fraction: float,
        test_fraction: float,
        labels_per_class: int | None,
        class_balance: float,
        patch_size: int | None,
        global_batch_size: int,
        device_batch_size: int | None,
        repeats: int,
        shuffle_window: int | None,
        num_workers: int | None,
        prefetch_batches: int | None,
        stall_timeout: float,
        on_bad_image: str,
        seed: int,
        augmentation: Transform | None = None,
        mixing: Mixing | None = None,
        resolution: ProgressiveResolution | None = None,
    ):
        super().__init__()
        one_of("on_bad_image", on_bad_image, ON_BAD_IMAGE)
        one_of("cache", cache, CACHES)
        check_fractions(val_fraction, test_fraction)
        check_order(class_balance, shuffle_window)
        at_least(1, repeats=repeats, shuffle_window=shuffle_window, prefetch_batches=prefetch_batches)
        at_least(1, cache_size=cache_size, labels_per_class=labels_per_class)
        at_least(0, num_workers=num_workers, stall_timeout=stall_timeout)
        check_machine(in_chans, image_size, num_workers)
        check_channels(source.in_chans, image_mode, in_chans)
        for key, crop in {"train": train_crop, "eval": eval_crop}.items():
            check_crop(key, crop, in_chans, patch_size)
        for key, transform in {"data.train_transform": train_transform, "augmentation": augmentation}.items():
            if transform is not None:
                check_augmentation(key, transform, in_chans)
        check_views(train_crop, eval_crop, mixing is not None)
        self.preprocessing = Preprocessing(mean=mean, std=std, in_chans=in_chans, patch_size=patch_size)
        self.source = source
        self.image_size = image_size
        self.image_mode = image_mode
        self.in_chans = in_chans
        self.num_classes = num_classes
        self.train_crop = train_crop
        self.eval_crop = eval_crop
        transforms = [t for t in (train_transform, augmentation) if t is not None]
        self.train_transform = v2.Compose(transforms) if transforms else None
        self.resolution = resolution
        self.cache = cache
        self.cache_root = Path(cache_root)
        self.cache_size = cache_size
        self.val_fraction = val_fraction
        self.test_fraction = test_fraction
        self.labels_per_class = labels_per_class
        self.class_balance = class_balance
        self.global_batch_size = global_batch_size
        self.device_batch_size = device_batch_size
        self.repeats = repeats
        self.shuffle_window = shuffle_window
        self.reading = Reading(num_workers, prefetch_batches, stall_timeout, from_device=cache == "device")
        self.on_bad_image = on_bad_image
        self.seed = seed
        self.mixing = mixing
        self.num_steps = 0  # optimizer steps of the whole run, known from `plan` on
        self.splits: dict[str, ImageSplit] = {}  # of the source's own images
        self.training: ImageSplit  # the training split, from the cache if there is one
        self.held = DeviceImages()
        self.fingerprint = ""
        self.test_split = "test"
        self.skipped: dict[str, dict[int, str]] = {split: {} for split in SPLITS}  # by place: which, and why

    # -- the trainer

    def attach(self, trainer: pl.Trainer, at_most: int | None = None, test_split: str = "test") -> int:
        """Take rank, number of ranks and step from a trainer, and cut its steps into micro-batches of `at_most` so many
        images. `test_split` is what trainer.test scores. Returns the images that a device takes at once. Raises
        ConfigError for a batch that does not divide."""
        self.trainer, self.test_split = trainer, test_split
        if at_most is not None:
            self.device_batch_size = largest_share(self.global_batch_size, at_most, trainer.world_size)
        size, trainer.accumulate_grad_batches = divide_batch(
            self.global_batch_size, self.device_batch_size, trainer.world_size
        )
        return size

    def plan(self) -> int:
        """Take the number of optimizer steps of the whole run from the trainer, and return it."""
        self.num_steps = planned_steps(self._trainer(), self.trained_steps_per_epoch())
        return self.num_steps

    # -- what there is

    def prepare_data(self) -> None:
        self.source.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Open the source, divide it into splits and check it against the config; the second call does nothing."""
        if self.splits:
            return
        pools = self.source.open()
        check_targets(pools, self.source.class_names, self.num_classes, self.class_balance)
        self.fingerprint = " ".join(f"{name}:{pool.fingerprint}:{len(pool)}" for name, pool in pools.items())
        parts = divide(pools, self.val_fraction, self.test_fraction)
        if self.labels_per_class is not None:
            pool, indices = parts["train"]
            few = few_of_each(pool.targets, indices, self.labels_per_class, self.seed, self.class_names)
            parts["train"] = pool, few
        self.splits = {name: self._split(name, *part) for name, part in parts.items()}
        if self.mixing is not None:
            self.targets[:1].shares(self.targets[:1].collate(), self.mixing.num_classes)  # refuses what cannot be mixed
        self.training = self.splits["train"].from_pool(self._cached(self.splits["train"].pool))
        if self.shuffle_window is not None and self.training.groups is None:
            raise ConfigError("data.shuffle_window is a number of shards, and this source has none; set it to null")
        check_image_size("train", self.training, self.image_size)
        check_image_size("val", self.splits["val"], self.image_size)
        if self.steps_per_epoch == 0:
            raise ConfigError(
                f"global_batch_size {self.global_batch_size} is larger than the training split of "
                f"{len(self.splits['train'])} images; make it smaller"
            )

    def _cached(self, pool: Pool) -> Pool:
        return CACHES[self.cache](
            pool,
            self.cache_root,
            size=self.cache_size,
            image_mode=self.image_mode,
            in_chans=self.in_chans,
            num_workers=workers_for(self.reading.num_workers, processes=1),
        )

    def _split(self, name: str, pool: Pool, indices: np.ndarray) -> ImageSplit:
        return ImageSplit(
            pool,
            indices,
            image_mode=self.image_mode,
            in_chans=self.in_chans,
            crop=self.train_crop if name == "train" else self.eval_crop,
            transform=self.train_transform if name == "train" else None,
            seed=self.seed,
        )

    @property
    def class_names(self) -> list[str]:
        return [readable(name) for name in self.source.class_names]

    @property
    def targets(self) -> Targets:
        """What the training images are labelled with."""
        return self.splits["train"].targets

    @property
    def num_views(self) -> int:
        """How many views of an image a training batch has."""
        return len(self.train_crop.views())

    @property
    def mixed_sizes(self) -> bool:
        """Whether a crop leaves images of different sizes in a batch."""
        return None in (self.train_crop.output_size(), self.eval_crop.output_size())

    @property
    def num_image_sizes(self) -> int:
        """How many sizes the images of a training have, one after the other."""
        return 1 + (len(self.resolution.sizes) if self.resolution else 0)

    def class_counts(self) -> np.ndarray:
        """How many training images have each class, (K,) int64."""
        targets = self.targets
        assert isinstance(targets, Classes)
        assert self.num_classes is not None
        return targets.counts(self.num_classes)

    def class_shares(self) -> np.ndarray:
        """How many images with each class an epoch's order holds, (K,) int64: as many, unless classes are balanced."""
        counts = self.class_counts()
        return class_shares(counts, self.class_balance) if self.class_balance else counts

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

    def evaluated(self, split: str) -> ImageSplit:
        """A split seen as in evaluation: the source's own images, whatever the training reads."""
        return self.splits[split].seen_through(self.eval_crop, None)

    # -- loaders

    def train_dataloader(self, in_this_process: bool = False) -> Loader:
        """The training batches from the trainer's step on, by worker processes or without any."""
        trainer, split = self._trainer(), self.training
        size, accumulation = divide_batch(self.global_batch_size, self.device_batch_size, trainer.world_size)
        order = TrainingOrder(
            len(split),
            global_batch_size=self.global_batch_size,
            accumulation=accumulation,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            seed=self.seed,
            position=lambda: trainer.global_step,
            groups=split.groups,
            window=self.shuffle_window,
            repeats=self.repeats,
            classes=split.targets.values if self.class_balance else None,
            class_balance=self.class_balance,
            image_size=self._image_size_at,
        )
        reading = self.reading._replace(num_workers=0) if in_this_process else self.reading
        return self._loader(reading, split, order, size)

    def val_dataloader(self) -> Loader:
        return self.evaluation_loader("val")

    def test_dataloader(self) -> Loader:
        return self.evaluation_loader(self.test_split)

    def evaluation_loader(self, split: str) -> Loader:
        """Every sample of a split once, with the evaluation crop; this rank's share of it."""
        trainer = self._trainer()
        size, _ = divide_batch(self.global_batch_size, self.device_batch_size, trainer.world_size)
        order = EvaluationOrder(
            len(self.splits[split]), batch_size=size, rank=trainer.global_rank, world_size=trainer.world_size
        )
        return self._loader(self.reading, self.evaluated(split), order, size)

    def _loader(
        self, reading: Reading, split: ImageSplit, order: TrainingOrder | EvaluationOrder, batch_size: int
    ) -> Loader:
        trainer = self._trainer()
        return reading.loader(
            split,
            order,
            batch_bytes=batch_size * self.in_chans * sum(crop.image_size**2 for crop in split.crop.views()),
            processes=trainer.num_devices,
            device=trainer.strategy.root_device,
        )

    def _image_size_at(self, step: int) -> int:
        return self.resolution.image_size(step, self.num_steps) if self.resolution else 0

    # -- batches

    def on_before_batch_transfer(self, batch: WorkerBatch, dataloader_idx: int) -> WorkerBatch:
        """Judge the files that could not be read."""
        self.check_readable(batch)
        if batch.unreadable:
            if not len(batch.index) and self._trainer().training:
                raise DataError(f"no image of a whole batch can be read, the first is {batch.unreadable[0]}")
            self.skipped[self._split_in_use()].update({bad.index: str(bad) for bad in batch.unreadable})
        return batch

    def check_readable(self, batch: WorkerBatch) -> None:
        """Raise DataError for a file that could not be read, unless such files are to be skipped."""
        if batch.unreadable and self.on_bad_image == "error":
            raise DataError(
                f"cannot read {batch.unreadable[0]}; mend or remove the file, or set data.on_bad_image=skip"
            )

    def on_after_batch_transfer(self, batch: WorkerBatch, dataloader_idx: int) -> Batch:
        """Finish a batch on the device: cut it out of the images there, normalise, mix, cut into patches."""
        trainer = self._trainer()
        if isinstance(batch, CropBatch):
            split = self.training if trainer.training else self.splits[self._split_in_use()]
            batch = self.held.cut(split, batch)
        if not trainer.training or self.mixing is None:
            return self.preprocessing.finished(batch)
        micro_batch = (trainer.fit_loop.epoch_loop.batch_idx + 1) % trainer.accumulate_grad_batches
        seed = counted_seed("mixing", self.seed, trainer.global_step, micro_batch, trainer.global_rank)
        shares = self.training.pool.targets.shares(batch.target, self.mixing.num_classes)
        return self.preprocessing.mixed(batch, shares, self.mixing, seed)

    def _split_in_use(self) -> str:
        trainer = self._trainer()
        if trainer.validating or trainer.sanity_checking:
            return "val"
        return "train" if trainer.training else self.test_split

    def _trainer(self) -> pl.Trainer:
        assert self.trainer is not None, "a loader belongs to a trainer: rank, number of ranks, step"
        return self.trainer
