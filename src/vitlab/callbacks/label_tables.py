"""What an evaluation report says of samples that have one class, that may have several, and that have a text.

n samples, B batch, K classes, M tokens of the longest text. A row begins with the sample's place in the split and its
loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

from vitlab.callbacks.figures import bar_figure, confusion_figure
from vitlab.data.targets import SeveralClasses, TextBatch
from vitlab.tasks.average_precision import average_precision
from vitlab.vocabulary import Vocabulary

MOST_CLASSES = 3  # classes above a picture


@dataclass(frozen=True)
class LabelTable:
    """One kind of labels, as functions: of a batch's target and probabilities (B, K) the columns of its rows; of the
    class names the heads of those columns in a file, and of a row what stands there and above a picture; of all rows
    which of K classes samples have and are said to have (or one text), the figure of the whole split, and its name;
    and whether the probabilities are those of classes."""

    columns: Callable[[Any, Tensor], Tensor]
    heads: Callable[[list[str]], list[str]]
    words: Callable[[np.ndarray, list[str]], list[str | float]]
    title: Callable[[np.ndarray, list[str]], str]
    answers: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
    figure: Callable[[np.ndarray, list[str], str], Figure]
    figure_name: str
    has_classes: bool = True


# -- one class


def stack_class_columns(target: Tensor, probabilities: Tensor) -> Tensor:
    """Give the true class, the predicted one, and its probability. (B,), (B, K) -> (B, 3)"""
    probability, predicted = probabilities.max(dim=1)
    return torch.stack([target.float(), predicted.float(), probability], dim=1)


def format_class_row(row: np.ndarray, names: list[str]) -> list[str | float]:
    true, predicted, probability = row.tolist()
    return [names[int(true)], names[int(predicted)], round(probability, 6)]


def format_class_title(row: np.ndarray, names: list[str]) -> str:
    true, predicted, probability = format_class_row(row, names)
    said = f"{probability:.1%} {predicted}"
    return f"✓ {said}" if true == predicted else f"✗ {said}\nis {true}"


def collect_class_answers(table: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3) -> (n, K), (n, K) bool"""
    classes = np.arange(K)
    return table[:, :1] == classes, table[:, 1:2] == classes


def draw_class_figure(table: np.ndarray, names: list[str], split: str) -> Figure:
    matrix = multiclass_confusion_matrix(
        torch.from_numpy(table[:, 1]).long(), torch.from_numpy(table[:, 0]).long(), num_classes=len(names)
    ).numpy()
    wrong = int(matrix.sum() - matrix.trace())
    return confusion_figure(matrix, names, f"{split}: {wrong} of {len(table)} wrong")


# -- several classes


def stack_classes_columns(target: Tensor, probabilities: Tensor) -> Tensor:
    """Give for each class whether the image has it, and its probability. (B, K), (B, K) -> (B, 2·K)"""
    return torch.cat([target, probabilities], dim=1)


def format_classes_row(row: np.ndarray, names: list[str]) -> list[str | float]:
    true, probabilities = np.split(row, 2)
    return [SeveralClasses(true[None]).words(0, names), *(round(p, 6) for p in probabilities.tolist())]


def format_classes_title(row: np.ndarray, names: list[str]) -> str:
    """List the classes that the image has, then the most probable ones, one per line."""
    true, probabilities = np.split(row, 2)
    there = [names[k] for k in np.flatnonzero(true)]
    more = [f"and {len(there) - MOST_CLASSES} more"] if len(there) > MOST_CLASSES else []
    said = [f"{names[k]} {probabilities[k]:.1%}" for k in probabilities.argsort()[::-1][:MOST_CLASSES]]
    return "\n".join([*(there[:MOST_CLASSES] or ["none"]), *more, "said:", *said])


def collect_classes_answers(table: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, 2·K) -> (n, K), (n, K) bool: a class is said to be there from a probability of 0.5 on."""
    true, probabilities = np.split(table, 2, axis=1)
    return true > 0.5, probabilities > 0.5


def draw_classes_figure(table: np.ndarray, names: list[str], split: str) -> Figure:
    true, probabilities = (torch.from_numpy(part) for part in np.split(table, 2, axis=1))
    precisions = average_precision(probabilities, true > 0.5).numpy()
    heading = f"{split}: average precision of each class, {np.nanmean(precisions):.3f} in the mean"
    return bar_figure(precisions, names, heading)


# -- a text


def build_text_table(vocabulary: Vocabulary) -> LabelTable:
    """Texts of these tokens. A row holds those that should stand there, those that were written, and how probable each
    was, (3·M,)."""

    def columns(target: TextBatch, written: Tensor) -> Tensor:
        """(B, L) and its lengths, (B, 2, M) -> (B, 3·M)"""
        missing = written.shape[2] - target.codes.shape[1]
        true = F.pad(target.codes.float(), (0, missing), value=vocabulary.special.padding)
        return torch.cat([true[:, None], written], dim=1).flatten(1)

    def words(row: np.ndarray, names: list[str]) -> list[str | float]:
        true, tokens, probabilities = np.split(row, 3)
        there = tokens != vocabulary.special.padding
        return [decode(true), decode(tokens), round(float(probabilities[there].prod()), 6)]

    def decode(tokens: np.ndarray) -> str:
        return vocabulary.decode(tokens.astype(int).tolist())

    def title(row: np.ndarray, names: list[str]) -> str:
        true, said, probability = words(row, names)
        told = f"{probability:.1%} {said}"
        return f"✓ {told}" if true == said else f"✗ {told}\nis {true}"

    def answers(table: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
        """(n, 3·M) -> (n, 1), (n, 1): the text that should stand there, and the one that does."""
        pairs = np.array([words(row, [])[:2] for row in table])
        return pairs[:, :1], pairs[:, 1:]

    def figure(table: np.ndarray, names: list[str], split: str) -> Figure:
        true, said = answers(table, 0)
        lengths, right = np.char.str_len(true)[:, 0], (true == said)[:, 0]
        every = np.unique(lengths)
        shares = np.array([right[lengths == length].mean() for length in every])
        heading = f"{split}: right texts by their length, {right.mean():.2%} of all {len(right)}"
        return bar_figure(shares, [f"{length} character{'' if length == 1 else 's'}" for length in every], heading)

    heads = ["true", "written", "probability"]
    return LabelTable(columns, lambda names: heads, words, title, answers, figure, "right_by_length", has_classes=False)


ONE_CLASS = LabelTable(
    stack_class_columns,
    lambda names: ["true", "predicted", "probability"],
    format_class_row,
    format_class_title,
    collect_class_answers,
    draw_class_figure,
    "confusion_matrix",
)
SEVERAL_CLASSES = LabelTable(
    stack_classes_columns,
    lambda names: ["true", *names],
    format_classes_row,
    format_classes_title,
    collect_classes_answers,
    draw_classes_figure,
    "average_precision",
)
