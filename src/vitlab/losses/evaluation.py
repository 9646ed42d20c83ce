"""Which options of a loss evaluation keeps."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

Loss = TypeVar("Loss", bound=Callable[..., Tensor])


def keep_in_evaluation(*options: str) -> Callable[[Loss], Loss]:
    """Declare which options of a loss say what it measures, such as a mean in place of a sum. All others are for
    training alone, such as label smoothing. A loss that declares nothing is evaluated with all its options."""

    def declare(loss: Loss) -> Loss:
        loss.keep_in_evaluation = options  # type: ignore[attr-defined]  # functions take any attribute
        return loss

    return declare


def evaluation_loss(loss: "partial[Tensor]") -> "partial[Tensor]":
    """Return the loss as evaluation computes it: with the options that it keeps, and the defaults of the others."""
    kept: Iterable[str] = getattr(loss.func, "keep_in_evaluation", loss.keywords)
    options: dict[str, Any] = {key: value for key, value in loss.keywords.items() if key in kept}
    return partial(loss.func, **options)
