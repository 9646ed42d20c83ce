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
    """n answers, and as many questions, in one vocabulary, of `images` as a `Texts` has them. `groups` name what is
    scored by itself: of each, which questions belong to it, (n,) bool."""

    kind = "with a question and its answer each"

    def __init__(
        self,
        values: np.ndarray | Sequence[str],
        vocabulary: Vocabulary,
        questions: np.ndarray | Sequence[str],
        groups: dict[str, np.ndarray],
        images: np.ndarray | None = None,
    ):
        super().__init__(values, vocabulary, images)
        self.questions = Texts(questions, vocabulary)
        self.groups = groups

    def __getitem__(self, indices: Indices) -> "Answers":
        assert self.vocabulary is not None
        groups = {name: belongs[indices] for name, belongs in self.groups.items()}
        questions, images = self.questions.values[indices], self.images[indices]
        return Answers(self.values[indices], self.vocabulary, questions, groups, images)

    def tobytes(self) -> bytes:
        return super().tobytes() + b"\0" + self.questions.tobytes()

    def collate(self) -> AnswerBatch:  # type: ignore[override]  # a text's, and more
        groups = torch.from_numpy(np.array(list(self.groups.values()), bool).reshape(len(self.groups), len(self)).T)
        return AnswerBatch(*super().collate(), self.questions.collate().codes, groups)

    def get_question(self, i: int) -> str:
        return str(self.questions.values[i])

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return f"{self.get_question(i)} {self.values[i]}"
