"""What data modules of images and of texts share: splits, a counted order, a trainer's batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import pytorch_lightning as pl

from vitlab.data.batches.batch_size import divide_batch, find_largest_share
from vitlab.data.checks import find_longest_text
from vitlab.data.loading.loader import Loader
from vitlab.data.order.sampler import EvaluationOrder, TrainingOrder
from vitlab.data.pools.packed_names import format_name
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.targets import Targets, Texts
from vitlab.errors import ConfigError
from vitlab.ranges import Count, Seed
from vitlab.vocabulary import Vocabulary


@dataclass(kw_only=True, eq=False, repr=False)
class DataModule(pl.LightningDataModule):
    """A source, divided into splits, whose samples come in a counted order as the batches of a trainer. A subclass
    prepares and opens the source in `setup`, adds to `found` what null in the config was resolved to, and loads and
    finishes batches."""

    things: ClassVar[str]  # what a sample is called in messages
    source: Any
    global_batch_size: Count
    device_batch_size: Count | None
    seed: Seed
    found: dict[str, Any] = field(init=False, default_factory=dict)  # values that the config leaves open
    images: Any = field(init=False)
    splits: Mapping[str, Any] = field(init=False, default_factory=dict)
    training: Any = field(init=False)  # the training split, as training reads it

    def __post_init__(self) -> None:
        super().__init__()
        self.num_steps = 0  # optimizer steps of the whole run, set by `plan`
        self.fingerprint = ""
        self.test_split = "test"
        self.skipped: dict[str, dict[int, str]] = {split: {} for split in SPLITS}  # reasons, by place in the split

    # -- the trainer

    def attach(self, trainer: pl.Trainer, at_most: int | None = None, test_split: str = "test") -> int:
        """Return how many samples a device takes at once, up to `at_most`, and set the trainer's accumulation.

        Rank, number of ranks and step come from this trainer from now on; `test_split` is what trainer.test scores.
        Raises ConfigError for a batch that does not divide.
        """
        self.trainer, self.test_split = trainer, test_split
        if at_most is not None:
            self.device_batch_size = find_largest_share(self.global_batch_size, at_most, trainer.world_size)
        size, trainer.accumulate_grad_batches = divide_batch(
            self.global_batch_size, self.device_batch_size, trainer.world_size
        )
        return size

    def plan(self) -> int:
        """Take the number of optimizer steps of the whole run from the trainer, and return it."""
        self.num_steps = count_planned_steps(self._trainer(), self.count_steps_per_epoch())
        return self.num_steps

    # -- what there is

    @property
    def class_names(self) -> list[str]:
        return [format_name(name) for name in self.source.class_names]

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Return the vocabulary of the texts to be written; None where targets are not texts."""
        return self.targets.vocabulary if isinstance(self.targets, Texts) else None

    @property
    def input_vocabulary(self) -> Vocabulary | None:
        """Return the vocabulary of the texts to be read; None where images are read."""
        return None

    def vocabularies(self) -> dict[str, dict[str, Any] | None]:
        """Return both vocabularies in the form that a checkpoint stores."""
        both = {"vocabulary": self.vocabulary, "input_vocabulary": self.input_vocabulary}
        return {key: None if vocabulary is None else vocabulary.state() for key, vocabulary in both.items()}

    @property
    def targets(self) -> Targets:
        """Return the targets of the training samples."""
        return cast(Targets, self.splits["train"].targets)

    @property
    def steps_per_epoch(self) -> int:
        """Count the optimizer steps of an epoch; the tail that does not fill a global batch is left out."""
        return len(self.splits["train"]) // self.global_batch_size

    def count_steps_per_epoch(self) -> int:
        """Count the optimizer steps in one of the trainer's epochs, which trainer.limit_train_batches may shorten."""
        trainer = self._trainer()
        batches = self.steps_per_epoch * trainer.accumulate_grad_batches
        limit = trainer.limit_train_batches
        batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        return cast(int, -(-batches // trainer.accumulate_grad_batches))

    @property
    def num_image_sizes(self) -> int:
        """Count the image sizes of a training run, one after the other."""
        return 1

    def _find_tokens(
        self,
        texts: Sequence[Targets],
        vocabulary: Vocabulary | None,
        keys: tuple[str, str] = ("vocab_size", "max_length"),
    ) -> None:
        """Put the size of a vocabulary and the length of the longest text into `found`, under those `keys` of `data`
        that are null."""
        if vocabulary is not None:
            given = {key: getattr(self, key) for key in keys}
            counted = zip(
                keys, (len(vocabulary), find_longest_text(texts, given[keys[1]], f"data.{keys[1]}")), strict=True
            )
            self.found |= {key: count for key, count in counted if given[key] is None}

    def _check_batches(self) -> None:
        if self.steps_per_epoch == 0:
            raise ConfigError(
                f"global_batch_size {self.global_batch_size} is larger than the training split of "
                f"{len(self.splits['train'])} {self.things}; make it smaller"
            )

    # -- loaders

    def evaluation_loader(self, split: str) -> Loader:
        """Load every sample of a split once; this rank's share of them."""
        raise NotImplementedError

    def val_dataloader(self) -> Loader:
        return self.evaluation_loader("val")

    def test_dataloader(self) -> Loader:
        return self.evaluation_loader(self.test_split)

    def training_order(self, **more: Any) -> tuple[TrainingOrder, int]:
        """Return the order from the trainer's step on, and how many samples a device takes at once."""
        trainer = self._trainer()
        size, accumulation = divide_batch(self.global_batch_size, self.device_batch_size, trainer.world_size)
        order = TrainingOrder(
            len(self.training),
            global_batch_size=self.global_batch_size,
            accumulation=accumulation,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            seed=self.seed,
            position=lambda: trainer.global_step,
            **more,
        )
        return order, size

    def evaluation_order(self, split: str) -> tuple[EvaluationOrder, int]:
        """Return an order of every sample of a split once, and how many samples a device takes at once."""
        trainer = self._trainer()
        size, _ = divide_batch(self.global_batch_size, self.device_batch_size, trainer.world_size)
        order = EvaluationOrder(
            len(self.splits[split]), batch_size=size, rank=trainer.global_rank, world_size=trainer.world_size
        )
        return order, size

    def _choose_split(self) -> str:
        trainer = self._trainer()
        if trainer.validating or trainer.sanity_checking:
            return "val"
        return "train" if trainer.training else self.test_split

    def _trainer(self) -> pl.Trainer:
        assert self.trainer is not None, "a loader belongs to a trainer: rank, number of ranks, step"
        return self.trainer


def count_planned_steps(trainer: Any, steps_per_epoch: int) -> int:
    """Count the optimizer steps of the whole run, from trainer.max_epochs and trainer.max_steps. Raises ConfigError for
    a run without an end or without a step, and for one that max_epochs ends before max_steps."""
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs * steps_per_epoch)
    if trainer.max_steps >= 0:
        limits.append(trainer.max_steps)
        if trainer.max_steps > limits[0] and not trainer.fast_dev_run:
            raise ConfigError(
                f"trainer.max_steps {trainer.max_steps:,} is more than the {limits[0]:,} steps of "
                f"trainer.max_epochs {trainer.max_epochs}; set trainer.max_epochs=-1 to end by steps, or "
                "trainer.max_steps=-1 to end by epochs"
            )
    if not limits:
        raise ConfigError("a run must end; set trainer.max_epochs or trainer.max_steps")
    if (steps := min(limits)) < 1 <= steps_per_epoch:
        raise ConfigError(
            f"a run of {steps} steps trains nothing; set trainer.max_epochs or trainer.max_steps to at least 1"
        )
    return cast(int, steps)
