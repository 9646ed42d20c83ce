"""Questions about images, and answers that a model writes (Antol et al., 2015, arXiv:1505.00468, VQA).

B batch, M tokens of the longest answer, Q of the longest question
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from vitlab.data.batches.batch import Batch
from vitlab.data.checks import find_longest_text
from vitlab.data.targets import Answers, Texts
from vitlab.errors import ConfigError, DataError
from vitlab.tasks.text_generation import TextGeneration
from vitlab.tasks.training_data import TrainingData

FILL = ""  # names a token that only fills a question up


class Answering(TextGeneration):
    """The answer to a question about an image is written. What `TextGeneration` measures is measured of the answers,
    and of each group that the data name `exact_<group>`, the share of right ones.

    Raises ValueError for a model that is asked no questions, and ConfigError for data that ask none.
    """

    model: Any  # one with a question_length
    asks = True

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        self.collect_questions(datamodule)

    def collect_questions(self, datamodule: TrainingData) -> Answers:
        """Check the questions of all splits, and give those for training. Raises ConfigError for data without any, and
        DataError, which names it, for one that is longer than the model reads."""
        if not isinstance(datamodule.targets, Answers):
            raise ConfigError(f"the task answers questions, but this data has images {datamodule.targets.kind}")
        asked = [split.targets.questions for split in datamodule.splits.values()]
        find_longest_text(asked, self.model.question_length, "model.question_length")
        return datamodule.targets

    def inputs(self, batch: Batch) -> tuple[Any, ...]:
        return self.pad_questions(batch.target.questions), *batch.view.arguments()

    def pad_questions(self, questions: Tensor) -> Tensor:
        """Fill questions up to the length that the model was made for. (B, Q) -> (B, question_length)"""
        missing = self.model.question_length - questions.shape[1]
        return F.pad(questions, (0, missing), value=self.vocabulary.special.padding)

    # -- evaluation

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self.name_groups("val")

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self.name_groups("test")

    def name_groups(self, stage: str) -> None:
        """Score the groups of the data, on all devices, whatever their samples."""
        self.metrics[stage]["text"].groups = list(self.collect_questions(self.trainer.datamodule).groups)

    def belongs(self, batch: Batch) -> Tensor:
        return batch.target.groups

    # -- a question by itself

    def ask(self, question: str) -> "QuestionAnswering":
        """Ask one question of every image. Raises DataError for one that is longer than the model reads, or has
        characters that it does not know."""
        return QuestionAnswering(self, question)


class QuestionAnswering:
    """Answer one question about any image. Raises as `Answering.ask`."""

    def __init__(self, task: Answering, question: str):
        self.task, self.text, self.vocabulary = task, question, task.vocabulary
        if not question.strip():
            raise DataError("question is empty; give a question, such as question='how many?'")
        most = task.model.question_length
        if (length := len(self.vocabulary.encode(question))) > most:
            raise DataError(
                f"the question '{question}' has {length} tokens with its end token, but the model reads at most {most}"
            )
        self.question = task.pad_questions(Texts([question], self.vocabulary).collate().codes)  # (1, Q)
        named = {self.vocabulary.special.padding: FILL, self.vocabulary.special.end: "end"}
        self.words = [named.get(token) or self.vocabulary.decode([token]) for token in self.question[0].tolist()]

    def generate(self, *inputs: Any, with_attention: bool = False) -> Any:
        """Write the model's answers to images, or to patches and their grid."""
        question = self.question.to(inputs[0].device).expand(len(inputs[0]), -1)
        return self.task.generate(question, *inputs, with_attention=with_attention)
