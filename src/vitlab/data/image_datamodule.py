"""Images of any source as patched batches for the trainer.

B batch, C channels, H W image height and width, P patch_size, N patches, K classes
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from vitlab.data.batches.batch import Batch, RawBatch
from vitlab.data.batches.mixing import Mixing
from vitlab.data.batches.preprocessing import Preprocessing
from vitlab.data.batches.resolution import ProgressiveResolution
from vitlab.data.cache import Cache, CropBatch, DeviceImages
from vitlab.data.checks import check_image_size, check_memory, check_mixing, check_targets
from vitlab.data.colours import CHECKED, measure_colours, read_spaced
from vitlab.data.datamodule import DataModule
from vitlab.data.delivery import Loading
from vitlab.data.images.augmentation import check_augmentation
from vitlab.data.images.images import Images, Transform
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import Loader, choose_num_workers
from vitlab.data.order.sampler import EvaluationOrder, Order, TrainingOrder, class_shares
from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.pool import Pool, Source
from vitlab.data.pools.splits import Splits
from vitlab.data.targets import Answers, Classes
from vitlab.errors import ConfigError, DataError
from vitlab.ranges import Count, Length, Pixels, Positive, Real, VocabSize
from vitlab.seeding import make_seed

WorkerBatch = RawBatch | CropBatch


@dataclass(kw_only=True, eq=False, repr=False)
class ImageDataModule(DataModule):
    """Patched batches of the splits train, val and test.

    Workers give uint8 images; after the copy to the device a batch is normalised, mixed (training only) and cut into
    patches, or left as images when `patch_size` is null. The order and the augmentation of training samples are
    functions of (seed, epoch, index), mixing of (seed, step, micro-batch, rank). Evaluation scores every sample once.

    `images`, `split`, `order`, `loading` and `cache` are the options of their rooms; `augmentation` comes after the
    transform of `images`; `resolution` changes the size of training crops by step. Unreadable files that are left out
    are listed in `skipped`. Raises ConfigError or DataError, in `setup`, when the source is not what the config says.
    """

    things = "images"
    source: Source
    image_size: Pixels
    in_chans: Count
    num_classes: Count | None
    mean: list[Real] | None
    std: list[Positive] | None
    patch_size: Pixels | None
    images: Images
    split: Splits
    order: Order
    loading: Loading
    cache: Cache
    vocab_size: VocabSize | None = None  # of data with texts
    max_length: Length | None = None
    input_max_length: Length | None = None
    augmentation: Transform | None = None
    mixing: Mixing | None = None
    resolution: ProgressiveResolution | None = None
    splits: dict[str, ImageSplit] = field(init=False, default_factory=dict)  # reads the source's own images
    training: ImageSplit = field(init=False)  # reads from the cache if there is one

    def __post_init__(self) -> None:
        super().__post_init__()
        check_memory(self.in_chans, self.image_size)
        self.images.check(self.source.in_chans, self.in_chans, self.patch_size)
        if self.augmentation is not None:
            check_augmentation("augmentation", self.augmentation, self.in_chans)
        if self.mixing is not None:
            check_mixing(self.images)
        if (self.mean is None) != (self.std is None):
            raise ConfigError(
                "data.mean and data.std must both be given; set both, or set both to null to measure them"
            )
        if self.mean is not None and self.std is not None:
            self._set_preprocessing(self.mean, self.std)
        self.train_transform = self.images.transform(self.augmentation)
        self.device_images = DeviceImages()

    def _set_preprocessing(self, mean: list[float], std: list[float]) -> None:
        self.preprocessing = Preprocessing(mean=mean, std=std, in_chans=self.in_chans, patch_size=self.patch_size)

    # -- what there is

    def setup(self, stage: str | None = None) -> None:
        """Open the source, divide it into splits and check it against the config; a second call does nothing."""
        if self.splits:
            return
        self.source.prepare()
        pools = self.source.open()
        check_targets(pools, self.source.class_names, self.num_classes, self.order.class_balance)
        self.fingerprint = " ".join(f"{name}:{pool.fingerprint}:{len(pool)}" for name, pool in pools.items())
        parts = self.split.divide(pools, self.seed, self.class_names)
        self.splits = {name: self._split(name, *part) for name, part in parts.items()}
        self._find()
        if self.mixing is not None:
            self._shares(self.targets[:1].collate())  # refuses what cannot be mixed
        workers = choose_num_workers(self.loading.num_workers, processes=1)
        train = self.splits["train"]
        self.training = train.replace_pool(
            self.cache.cache_pool(train.pool, mode=self.images.mode, in_chans=self.in_chans, num_workers=workers)
        )
        if self.order.shuffle_window is not None and self.training.groups is None:
            raise ConfigError("data.order.shuffle_window counts shards, but this source has none; set it to null")
        check_image_size("train", self.training, self.image_size)
        if "val" in self.splits:
            check_image_size("val", self.splits["val"], self.image_size)
        self._check_batches()

    def _find(self) -> None:
        """Count classes and tokens and measure colours where the config leaves them open."""
        if self.num_classes is None and isinstance(self.targets, Classes):
            self.num_classes = self.found["num_classes"] = len(self.class_names)
        self.found |= getattr(self.source, "found", {})
        targets = [split.targets for split in self.splits.values()]
        self._find_tokens(targets, self.vocabulary)
        if questions := [own.questions for own in targets if isinstance(own, Answers)]:
            self._find_tokens(questions, self.vocabulary, ("vocab_size", "input_max_length"))
        if not hasattr(self, "preprocessing"):
            workers = choose_num_workers(self.loading.num_workers, processes=1)
            mean, std = measure_colours(self.get_evaluation_split("train"), workers, self.loading.on_bad_image)
            self.found |= {"mean": mean, "std": std}
            self._set_preprocessing(mean, std)

    def check_readable(self) -> None:
        """Read some files of each split. Raises DataError for one that cannot be read, unless such are skipped."""
        workers = choose_num_workers(self.loading.num_workers, processes=1)
        for name, split in self.splits.items() if self.loading.on_bad_image == "error" else ():
            read = name == "train" and "mean" in self.found  # which was measured on them
            if isinstance(split.pool, FilePool) and not read:
                read_spaced(self.get_evaluation_split(name), CHECKED, f"checking {name}", workers, "error")

    def _shares(self, target: Any) -> Tensor:
        assert self.num_classes is not None or not isinstance(self.targets, Classes)
        return self.splits["train"].pool.targets.shares(target, self.num_classes or 0)

    def _split(self, name: str, pool: Pool, indices: np.ndarray) -> ImageSplit:
        return ImageSplit(
            pool,
            indices,
            image_mode=self.images.mode,
            in_chans=self.in_chans,
            crop=self.images.train_crop if name == "train" else self.images.eval_crop,
            transform=self.train_transform if name == "train" else None,
            seed=self.seed,
        )

    @property
    def num_image_sizes(self) -> int:
        """Count the sizes that the images of a training run have, one after the other."""
        return 1 + (len(self.resolution.sizes) if self.resolution else 0)

    def class_counts(self) -> np.ndarray:
        """Count the training images of each class, (K,) int64."""
        targets = self.targets
        assert isinstance(targets, Classes)
        assert self.num_classes is not None
        return targets.counts(self.num_classes)

    def class_shares(self) -> np.ndarray:
        """Count the images of each class in an epoch's order, (K,) int64: `class_counts`, unless classes are
        balanced."""
        counts = self.class_counts()
        return class_shares(counts, self.order.class_balance) if self.order.class_balance else counts

    def get_evaluation_split(self, split: str) -> ImageSplit:
        """Return a split as evaluation sees it: the source's own images, whatever training reads."""
        return self.splits[split].replace_crop(self.images.eval_crop, None)

    # -- loaders

    def train_dataloader(self, in_this_process: bool = False) -> Loader:
        """Load the training batches from the trainer's step on, with or without worker processes."""
        split = self.training
        order, size = self.training_order(
            groups=split.groups,
            window=self.order.shuffle_window,
            repeats=self.order.repeats,
            classes=split.targets.values if self.order.class_balance else None,
            class_balance=self.order.class_balance,
            image_size=self._find_image_size,
        )
        return self._loader(split, order, size, in_this_process)

    def evaluation_loader(self, split: str) -> Loader:
        """Load every sample of a split once, with the evaluation crop; this rank's share of them."""
        order, size = self.evaluation_order(split)
        return self._loader(self.get_evaluation_split(split), order, size)

    def _loader(
        self, split: ImageSplit, order: TrainingOrder | EvaluationOrder, batch_size: int, in_this_process: bool = False
    ) -> Loader:
        trainer = self._trainer()
        return self.loading.loader(
            split,
            order,
            batch_size=batch_size,
            processes=trainer.num_devices,
            device=trainer.strategy.root_device,
            from_device=self.cache.on_device,
            in_this_process=in_this_process,
        )

    def _find_image_size(self, step: int) -> int:
        return self.resolution.image_size(step, self.num_steps) if self.resolution else 0

    # -- batches

    def on_before_batch_transfer(self, batch: WorkerBatch, dataloader_idx: int) -> WorkerBatch:
        """Refuse or skip the files that could not be read."""
        self.loading.check_readable(batch)
        if batch.unreadable:
            if not len(batch.index) and self._trainer().training:
                raise DataError(f"none of the images of a batch can be read; the first is {batch.unreadable[0]}")
            self.skipped[self._choose_split()].update({bad.index: str(bad) for bad in batch.unreadable})
        return batch

    def on_after_batch_transfer(self, batch: WorkerBatch, dataloader_idx: int) -> Batch:
        """Finish a batch on the device: cut it out of the images there, normalise, mix, cut into patches."""
        trainer = self._trainer()
        if isinstance(batch, CropBatch):
            split = self.training if trainer.training else self.splits[self._choose_split()]
            batch = self.device_images.cut(split, batch)
        if not trainer.training or self.mixing is None:
            return self.preprocessing.finish_batch(batch)
        micro_batch = (trainer.fit_loop.epoch_loop.batch_idx + 1) % trainer.accumulate_grad_batches
        seed = make_seed("mixing", self.seed, trainer.global_step, micro_batch, trainer.global_rank)
        return self.preprocessing.mix_batch(batch, self._shares(batch.target), self.mixing, seed)
