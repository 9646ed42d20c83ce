"""Prove that an exported folder computes what the model does, before anybody is given it.

B batch, C channels, H W image height and width, K num_classes
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from vitlab.errors import CheckpointError, ConfigError
from vitlab.models import VisionTransformer
from vitlab.weights.exporting import Export
from vitlab.weights.transfer import load

TOLERANCE = 1e-4  # of the largest value: float32 over dozens of layers; another GELU differs by more
Open = Callable[[Path], Callable[[Tensor], Tensor]]


@torch.inference_mode()
def check_export(folder: Path, made: Export, model: VisionTransformer, twin: nn.Module, open_there: Open) -> str:
    """Compare the model with the folder as read into its `twin`, a model with `made.options`, and as its own library
    opens it, on seeded images. Return a sentence about a comparison that could not be made, "" where all were. Raises
    ConfigError where one gives other logits, or other features of a model without a head."""
    images = draw_images(model)
    expected = model(images) if made.has_head else model.represent(images)
    if not expected.any():
        raise ConfigError("every output of this model is 0, so its export cannot be compared with it; train it first")
    try:
        load(twin, str(folder))
    except CheckpointError as error:
        raise ConfigError(f"the export cannot be read back: {error}") from error
    twin.eval()
    assert isinstance(twin, VisionTransformer)
    compare("read back here", twin(images) if made.has_head else twin.represent(images), expected)
    try:
        other = open_there(folder)
    except ImportError as error:
        return f"not compared in its own library: {error}"
    except Exception as error:  # whatever a library raises of a folder that it does not understand
        reason = str(error).strip().split("\n")[-1].strip()
        raise ConfigError(f"the exported model cannot be opened by its own library: {reason}") from error
    compare("opened by its own library", other(images), expected)
    return ""


def draw_images(model: VisionTransformer, count: int = 4) -> Tensor:
    """Draw images as a model takes them, always the same. -> (B, C, H, W)"""
    channels = next(module for module in model.patch_embed.modules() if isinstance(module, nn.Conv2d)).in_channels
    height, width = model.patch_embed.image_size
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(0))


def compare(how: str, found: Tensor, expected: Tensor) -> None:
    """Raise ConfigError unless both are the same numbers, but for the order of sums in float32."""
    largest = float(expected.abs().max())
    error = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    if not error <= TOLERANCE * largest:
        raise ConfigError(
            f"the exported model, {how}, gives outputs that differ from the run's by {error:.2g} (largest output "
            f"{largest:.2g}); this model cannot be exported to that format; try the other format"
        )
