"""What the server answers, as JSON and in OpenAPI.

L layers, h heads, N patches
"""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, Field

from vitlab.serving.batching import Row

DIGITS = 6  # of a probability


class ClassProbability(BaseModel):
    """A class, and its calibrated probability."""

    name: str
    probability: float


class ImageAnswer(BaseModel):
    """What the model says of an image."""

    classes: list[ClassProbability] = Field(description="the most probable classes, the best first")
    none_of_these: bool | None = Field(description="the image is probably of none of the classes; null: not known")
    novelty: float | None = Field(description="how unlike the training images it is: above 1, none of the classes")
    heat_map: list[list[float]] | None = Field(
        default=None, description="how much each patch speaks for the best class, row by row; the highest is 1"
    )


class Answer(BaseModel):
    """An answer for each image, in the order of the request."""

    model: str
    images: list[ImageAnswer]


class Explanation(BaseModel):
    """An answer, and where the model looked: weights are in multiples of even attention."""

    answer: ImageAnswer
    picture: str = Field(description="what the model saw: a PNG as a data URL")
    grid: tuple[int, int] = Field(description="rows and columns of patches")
    class_name: str = Field(description="the class that the heat map is of")
    heat_map: list[float] | None = Field(description="(N,), as in an answer; null: see missing")
    attention: list[list[list[float]]] = Field(description="(L, h, N): how much what the head reads looks at patches")
    rollout: list[list[float]] = Field(description="(L, N): the attention of all layers up to each, multiplied")
    missing: str | None = Field(description="why attention or the heat map are missing")


class ErrorAnswer(BaseModel):
    """Why a request was refused."""

    error: str


def describe_image(row: Row, labels: Sequence[str], top_k: int) -> ImageAnswer:
    """Say what the model says of an image, with its `top_k` best classes."""
    probabilities = row["probabilities"]
    best = np.argsort(-probabilities, kind="stable")[:top_k]
    novelty = float(row["novelty"]) if "novelty" in row else None
    return ImageAnswer(
        classes=[ClassProbability(name=labels[k], probability=round(float(probabilities[k]), DIGITS)) for k in best],
        none_of_these=None if novelty is None else novelty > 1,
        novelty=None if novelty is None else round(novelty, DIGITS),
    )
