"""What a model says of one sample, as a row with columns: for predictions.csv, test_predictions.csv and Python.

B batch, K classes
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

Value = str | float
DIGITS, DIGITS_OF_NOVELTY = 6, 4  # in a file; more would depend on the images scored beside one
COLUMNS: dict[str, Callable[[Tensor], Tensor]] = {}  # further ones, of probabilities (B, K): name -> a number each (B,)


@dataclass(frozen=True)
class Prediction:
    """What a model says of an image: its most probable class, and `top`, the best classes with their probabilities, the
    best first. `image` is the file, None for an image that came without one. `novelty` tells how unlike the training
    images it is: above 1, it is of none of the classes; None where that is not known. `more` holds what `COLUMNS`
    add."""

    image: Path | None
    class_name: str
    probability: float
    top: tuple[tuple[str, float], ...]
    more: Mapping[str, float] = field(default_factory=dict)
    novelty: float | None = None

    @property
    def none_of_these(self) -> bool:
        """Whether the image is probably of none of the classes."""
        return self.novelty is not None and self.novelty > 1

    def columns(self) -> dict[str, Value]:
        """Give the columns of a file: class_1, probability_1, class_2 and so on, then the further ones."""
        row: dict[str, Value] = {}
        for rank, (name, probability) in enumerate(self.top, start=1):
            row |= {f"class_{rank}": name, f"probability_{rank}": round(probability, DIGITS)}
        if self.novelty is not None:
            row |= {
                "novelty": round(self.novelty, DIGITS_OF_NOVELTY),
                "none_of_these": "yes" if self.none_of_these else "no",
            }
        return row | {name: round(value, DIGITS) for name, value in self.more.items()}

    def __str__(self) -> str:
        classes = "  ".join(f"{name} {round(probability, DIGITS):.1%}" for name, probability in self.top)
        unknown = ["probably none of these"] if self.none_of_these else []
        return "  ".join([classes, *unknown, *(f"{name} {value:.4g}" for name, value in self.more.items())])


@dataclass(frozen=True)
class WrittenText:
    """What a model writes of an image or a text, and each of its tokens with its probability, the last of which ends
    it."""

    text: str
    tokens: tuple[tuple[str, float], ...]

    @property
    def probability(self) -> float:
        """The probability of the whole text."""
        return math.prod(p for _, p in self.tokens)

    def columns(self) -> dict[str, Value]:
        """Give the columns of a file."""
        tokens = json.dumps(self.tokens)
        return {"text": self.text, "probability": round(self.probability, DIGITS), "tokens": tokens}

    def __str__(self) -> str:
        parts = "  ".join(f"{part or 'end'} {p:.1%}" for part, p in self.tokens)
        return f"{self.text}   {round(self.probability, DIGITS):.1%}   ({parts})"


def compute_columns(probabilities: Tensor) -> dict[str, Tensor]:
    """Compute the further columns of a batch, by their names. (B, K) -> (B,) each"""
    return {name: column(probabilities) for name, column in COLUMNS.items()}


def rank_classes(
    probabilities: Tensor,
    names: Sequence[str],
    top_k: int,
    images: Sequence[Path | None],
    novelty: Tensor | None = None,
) -> Iterator[Prediction]:
    """Give a prediction for each image, with the `top_k` most probable classes. (B, K), (B,) -> B"""
    unlike = [None] * len(images) if novelty is None else novelty.tolist()
    values, places = probabilities.topk(min(top_k, len(names)), dim=1)
    more = {name: column.tolist() for name, column in compute_columns(probabilities).items()}
    for number, row in enumerate(zip(values.tolist(), places.tolist(), strict=True)):
        top = tuple((names[place], value) for value, place in zip(*row, strict=True))
        own = {name: column[number] for name, column in more.items()}
        yield Prediction(images[number], *top[0], top, own, unlike[number])
