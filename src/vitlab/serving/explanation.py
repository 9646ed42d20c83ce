"""Say where a model looks, and which patches speak for a class, for the page and for heat maps.

C channels, S image_size, L layers, h heads, N patches
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.models import VisionTransformer
from vitlab.views import relevance, why_no_relevance
from vitlab.views.look import look
from vitlab_runtime.pixels import Preprocessing


class Views(NamedTuple):
    """What is to be seen of one image, empty or None where a model does not have it."""

    attention: list[list[list[float]]]  # (L, h, N)
    rollout: list[list[float]]  # (L, N)
    heat_map: list[float] | None  # (N,)


class Explainer:
    """A Vision Transformer of which attention and heat maps are computed, in one thread."""

    def __init__(self, model: VisionTransformer, preprocessing: Preprocessing):
        self.model, self.preprocessing = model, preprocessing
        self.grid = model.patch_embed.grid
        self.no_heat_map = why_no_relevance(model)
        self.thread = ThreadPoolExecutor(1, "explain")  # the views replace parts of the model while they look

    async def draw_heat_map(self, pixels: np.ndarray, place: int) -> list[float]:
        """Compute how much each patch of an image (C, S, S) speaks for a class -> (N,), the highest 1."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, self.compute_heat_map, pixels, place)

    async def explain(self, pixels: np.ndarray, place: int) -> Views:
        """Compute all views of an image (C, S, S), the heat map for the class at `place`."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, self.compute_views, pixels, place)

    def compute_heat_map(self, pixels: np.ndarray, place: int) -> list[float]:
        found = relevance(self.model, self.normalize(pixels), place)
        shares: list[float] = shorten(found / found.max().clamp_min(1e-12))
        return shares

    def compute_views(self, pixels: np.ndarray, place: int) -> Views:
        seen = look(self.model, self.normalize(pixels))
        heat_map = None if self.no_heat_map else self.compute_heat_map(pixels, place)
        return Views([], [], heat_map) if seen is None else Views(shorten(seen.maps), shorten(seen.rollout), heat_map)

    def normalize(self, pixels: np.ndarray) -> Tensor:
        """(C, S, S) in uint8 -> (1, C, S, S)"""
        return torch.from_numpy(self.preprocessing.normalize(pixels[None]))


def shorten(values: Tensor) -> Any:
    """Write numbers with four digits, which a page cannot tell from more."""
    return values.double().round(decimals=4).tolist()
