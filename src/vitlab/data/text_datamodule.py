"""Texts to be read, and a text to be written for each, in batches for the trainer.

B batch, N tokens of the longest text to be read, M of the longest to be written
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vitlab.data.batches.batch import Batch, RawBatch, TextView
from vitlab.data.checks import check_targets
from vitlab.data.datamodule import DataModule
from vitlab.data.loading.dataset import Split
from vitlab.data.loading.loader import Loader
from vitlab.data.order.sampler import EvaluationOrder, Key, TrainingOrder
from vitlab.data.pools.pool import TextPool
from vitlab.data.pools.splits import Splits
from vitlab.data.targets import TextBatch, Texts
from vitlab.ranges import Length, VocabSize
from vitlab.vocabulary import Vocabulary


class NoImages:
    """The properties of images that others ask for, where there are none."""

    num_views = 1
    mixed_sizes = False


@dataclass(kw_only=True, eq=False, repr=False)
class TextDataModule(DataModule):
    """Batches of the splits train, val and test: texts to be read, and a text to be written for each.

    Texts are encoded in this process, as they are needed. `input_vocab_size` and `input_max_length` describe the texts
    to be read. Raises ConfigError or DataError, in `setup`, when the source is not what the config says.
    """

    things = "texts"
    vocab_size: VocabSize | None
    max_length: Length | None
    input_vocab_size: VocabSize | None
    input_max_length: Length | None
    split: Splits
    images: NoImages = field(init=False, default_factory=NoImages)
    splits: dict[str, "TextSplit"] = field(init=False, default_factory=dict)
    training: "TextSplit" = field(init=False)

    @property
    def input_vocabulary(self) -> Vocabulary | None:
        return self.splits["train"].read.vocabulary

    def setup(self, stage: str | None = None) -> None:
        """Open the source and divide it into splits; the second call does nothing."""
        if self.splits:
            return
        self.source.prepare()
        pools = self.source.open()
        check_targets(pools, [], None, 0.0)
        self.fingerprint = " ".join(f"{name}:{pool.fingerprint}:{len(pool)}" for name, pool in pools.items())
        parts: dict[str, Any] = self.split.divide(pools, self.seed, [])
        self.splits = {name: TextSplit(*part) for name, part in parts.items()}
        self.training = self.splits["train"]
        splits = self.splits.values()
        self.found |= getattr(self.source, "found", {})
        self._find_tokens([split.targets for split in splits], self.vocabulary)
        keys = "input_vocab_size", "input_max_length"
        self._find_tokens([split.read for split in splits], self.input_vocabulary, keys)
        self._check_batches()

    def train_dataloader(self) -> Loader:
        """Load the training batches from the trainer's step on."""
        return self._loader("train", self.training_order()[0])

    def evaluation_loader(self, split: str) -> Loader:
        return self._loader(split, self.evaluation_order(split)[0])

    def _loader(self, split: str, order: TrainingOrder | EvaluationOrder) -> Loader:
        device = self._trainer().strategy.root_device
        return Loader(self.splits[split], order, num_workers=0, prefetch_batches=None, stall_timeout=0, device=device)

    def on_after_batch_transfer(self, batch: RawBatch, dataloader_idx: int) -> Batch:
        return finish_texts(batch)


class TextSplit(Split):
    """Texts of a pool. Items of a whole batch -> RawBatch."""

    pool: TextPool

    @property
    def read(self) -> Texts:
        return self.pool.read[self.indices]

    def __getitems__(self, keys: Sequence[Key]) -> RawBatch:
        index = np.array([key.index for key in keys], dtype=int)
        return collate_texts(
            self.pool.read[self.indices[index]], self.pool.targets[self.indices[index]].collate(), index
        )


def collate_texts(read: Texts, target: TextBatch | None, index: np.ndarray) -> RawBatch:
    """Collate texts to be read, with the texts to be written where these are known."""
    return RawBatch((read.collate(),), target, torch.from_numpy(index))


def finish_texts(batch: RawBatch) -> Batch:
    """Return what a model takes: tokens, and which of them are not padding."""
    codes, lengths = batch.view
    present = torch.arange(codes.shape[1], device=codes.device) < lengths[:, None]
    return Batch((TextView(codes, present),), batch.target, batch.index)
