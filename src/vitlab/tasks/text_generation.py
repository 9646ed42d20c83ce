"""Texts, written one token after the other, of what a model has read: an image, or another text.

B batch, M tokens of the longest text, V vocab_size
"""

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from vitlab.data.batches.batch import Batch
from vitlab.data.targets import Texts
from vitlab.errors import ConfigError
from vitlab.losses import next_token_cross_entropy, teacher_forced
from vitlab.models import EncoderDecoder, SingleStream
from vitlab.ranges import Rate
from vitlab.tasks.supervised import Predictions
from vitlab.tasks.task import Task
from vitlab.tasks.text_errors import TextErrors
from vitlab.tasks.training_data import TrainingData
from vitlab.vocabulary import StartTokenVocabulary, Vocabulary


class TextGeneration(Task):
    """Each token is predicted from the right ones before it (teacher forcing); evaluation scores that loss, and what
    the model writes by itself: `exact` the share of right texts, `cer` the character error rate.

    `decoding` is one of vitlab.decoding. Raises ValueError for a model that writes no texts, and ConfigError for a
    vocabulary of another size than the model's.
    """

    model: EncoderDecoder | SingleStream
    asks = False  # whether the model is given a question beside what it reads

    def __init__(
        self,
        *,
        model: nn.Module,
        vocabulary: Vocabulary,
        label_smoothing: Rate,
        decoding: Any,
        **others: Any,
    ):
        if not isinstance(model, EncoderDecoder | SingleStream):
            raise ValueError(f"the model is a {type(model).__name__}, which writes no texts; choose model=reader_xs8")
        if hasattr(model, "question_length") != self.asks:
            told = "is asked no questions; choose model=single_stream_xs8 or asked_reader_xs8"
            told = told if self.asks else "wants a question beside each image; set task=answering"
            raise ValueError(f"the model is a {type(model).__name__}, but {told}")
        if model.vocab_size != len(vocabulary):
            raise ConfigError(
                f"the model's vocab_size is {model.vocab_size}, but the vocabulary has {len(vocabulary)} tokens; "
                "to find it, set data.vocab_size=null"
            )
        if decoding.max_length > model.max_length:
            raise ConfigError(
                f"task.decoding.max_length is {decoding.max_length}, but the model writes {model.max_length} tokens at "
                "most; set the model's max_length higher"
            )
        self.vocabulary, self.max_length = vocabulary, model.max_length
        super().__init__(model=model, **others)
        self.label_smoothing = label_smoothing
        self.decoding = decoding
        self.loss(torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.long), label_smoothing)  # refuses it now

    def monitors(self) -> list[str]:
        return ["val/loss", "val/exact", "val/cer"]

    def new_metrics(self, stage: str) -> MetricCollection:
        if stage == "fit":
            return MetricCollection({})
        return MetricCollection({"text": TextErrors(self.vocabulary, self.max_length)})

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        assert isinstance(datamodule.targets, Texts)
        if self.vocabulary.special.end == self.vocabulary.special.padding:
            raise ConfigError(
                "the token that ends a text also pads it, so the model would not learn to end; name another token of "
                "the "
                "tokenizer as the third of data.source.special_tokens"
            )
        if isinstance(self.vocabulary, StartTokenVocabulary):
            raise ConfigError("the decoder adds the token that begins a text itself; set data.source.begin_token=false")

    def loss(self, logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        """(B, M, V), (B, M) -> (B,)"""
        padding = self.vocabulary.special.padding
        return next_token_cross_entropy(logits, target, padding=padding, label_smoothing=label_smoothing)

    def inputs(self, batch: Batch) -> tuple[Any, ...]:
        """Return what the model is given to read."""
        return batch.view.arguments()

    def belongs(self, batch: Batch) -> Tensor | None:
        """Tell which groups, each scored by itself, samples belong to: (B, G) bool; None where there are none."""
        return None

    def forward(self, target: Tensor, *inputs: Any) -> Tensor:
        """The logits of each token of a target (B, M), told those before it, and what the model reads. -> (B, M, V)"""
        present = target != self.vocabulary.special.padding
        return self.model(teacher_forced(target, self.vocabulary.special.begin), *inputs, written_present=present)

    def training_losses(self, batch: Batch) -> Tensor:
        target = batch.target.codes
        return self.loss(self(target, *self.inputs(batch)), target, self.label_smoothing)

    def evaluate_batch(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        target, inputs = batch.target.codes, self.inputs(batch)
        loss = self.loss(self(target, *inputs), target, 0.0)
        written = self.generate(*inputs)
        self.metrics[stage]["text"].update(written.tokens, target, self.belongs(batch))
        return loss, {"predictions": Predictions(written, loss)}

    def generate(self, *inputs: Any, with_attention: bool = False) -> Any:
        """Write the text of each input, as `decoding` does."""
        return self.decoding(self.model.begin_text(*inputs), self.vocabulary.special, with_attention=with_attention)

    def probabilities(self, written: Any) -> Tensor:
        """The tokens of written texts, and how probable each was, filled up behind their ends. -> (B, 2, max_length)"""
        missing = self.max_length - written.tokens.shape[1]
        tokens = nn.functional.pad(written.tokens, (0, missing), value=self.vocabulary.special.padding)
        probabilities = nn.functional.pad(written.log_probs.exp(), (0, missing))
        return torch.stack([tokens.float(), probabilities], dim=1)
