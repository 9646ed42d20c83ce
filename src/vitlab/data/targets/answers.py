"""Label images with a question each, and its answer.

n images, B batch, M tokens of the longest answer, Q of the longest question, G groups
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.data.targets.targets import Indices
from vitlab.data.targets.texts import Texts
from vitlab.vocabulary import Vocabulary


class AnswerBatch(NamedTuple):
    """Token numbers of the answers, (B, M), padded behind their `lengths` (B,), those of the questions, (B, Q), and
    the groups that each belongs to, (B, G) bool."""

    codes: Tensor
    lengths: Tensor
    questions: Tensor
    groups: Tensor


class Answers(Texts):
    """n answers, and as many questions, in one vocabulary. `groups` name what is scored by itself: of each, which
    questions belong to it, (n,) bool."""

    kind = "with a question and its answer each"

    def __init__(
        self,
        values: np.ndarray | Sequence[str],
        vocabulary: Vocabulary,
        questions: np.ndarray | Sequence[str],
        groups: dict[str, np.ndarray],
    ):
        super().__init__(values, vocabulary)
        self.questions = Texts(questions, vocabulary)
        self.groups = groups

    def __getitem__(self, indices: Indices) -> "Answers":
        assert self.vocabulary is not None
        groups = {name: belongs[indices] for name, belongs in self.groups.items()}
        return Answers(self.values[indices], self.vocabulary, self.questions.values[indices], groups)

    def tobytes(self) -> bytes:
        return super().tobytes() + b"\0" + self.questions.tobytes()

    def collate(self) -> AnswerBatch:  # type: ignore[override]  # a text's, and more
        groups = torch.from_numpy(np.stack(list(self.groups.values()), axis=1))
        return AnswerBatch(*super().collate(), self.questions.collate().codes, groups)

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return f"{self.questions.values[i]} {self.values[i]}"
