"""Generate pictures for tests and measurements: any size, number of classes and of channels."""

import math

import numpy as np
import torch

from vitlab.data.pools.pool import Pool, Source
from vitlab.data.targets import Classes, OneClass, SeveralClasses
from vitlab.ranges import Count, Deviation, Pixels
from vitlab.seeding import draw_numbers, make_seed

MOST_WAVES = 3  # in an image of several


class Synthetic(Source):
    """Noisy waves whose direction is their class: class k of K runs at the angle π·k/K, phase and wave length vary.

    `num_samples` images (in_chans, image_size, image_size) in uint8, the classes in equal shares; the same ones for
    the same sizes. A linear model on pixels cannot tell them apart, a small ViT learns them in seconds.
    """

    def __init__(
        self, *, num_samples: Count, num_classes: Count, in_chans: Count, image_size: Pixels, noise: Deviation
    ):
        if num_classes > num_samples:
            raise ValueError(f"num_classes {num_classes} is more than num_samples {num_samples}")
        self.class_names = [f"{180 * k / num_classes:.3g} degrees" for k in range(num_classes)]
        self.num_samples = num_samples
        self.in_chans = in_chans
        self.image_size = image_size
        self.noise = noise

    def open(self) -> dict[str, Pool]:
        classes = np.arange(self.num_samples, dtype=np.int64) % len(self.class_names)
        return {"train": WavePool(self, OneClass(classes))}


class SyntheticMultilabel(Synthetic):
    """The same with several waves in an image, of different classes: the mean of none up to three of them."""

    def open(self) -> dict[str, Pool]:
        num_classes = len(self.class_names)
        counters = np.arange(self.num_samples)[:, None]
        numbers = draw_numbers("synthetic classes", counters, 1 + num_classes)
        waves = (numbers[:, :1] * (1 + min(MOST_WAVES, num_classes))).astype(int)  # how many an image has
        ranks = numbers[:, 1:].argsort(axis=1).argsort(axis=1)
        return {"train": WavePool(self, SeveralClasses((ranks < waves).astype(np.uint8)))}


class WavePool(Pool):
    """The images of a `Synthetic`, computed when they are asked for."""

    targets: Classes
    computed = True

    def __init__(self, source: Synthetic, targets: Classes):
        num_classes, in_chans = len(source.class_names), int(source.in_chans or 0)
        sizes = (source.num_samples, num_classes, in_chans, source.image_size, source.noise)
        kind = "" if isinstance(targets, OneClass) else "multilabel"
        super().__init__(targets, fingerprint=kind + str(sizes).replace(" ", ""))
        self.num_classes = num_classes
        self.shape = (in_chans, source.image_size, source.image_size)
        self.noise = source.noise

    def load(self, i: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(make_seed("synthetic", i))
        y, x = torch.meshgrid(*[torch.linspace(0, 1, self.shape[-1])] * 2, indexing="ij")
        waves = [torch.zeros_like(x)]
        for k in self.targets.get_classes(i):
            phase, length = torch.rand(2, generator=generator).tolist()
            angle = math.pi * k / self.num_classes
            where = (3 + 2 * length) * (x * math.cos(angle) + y * math.sin(angle)) + phase
            waves.append(torch.sin(2 * math.pi * where))
        wave = torch.stack(waves).sum(dim=0) / max(1, len(waves) - 1)
        noise = self.noise * torch.randn(self.shape, generator=generator)
        pixels = ((0.5 + 0.25 * wave + noise).clamp(0, 1) * 255).round().to(torch.uint8)  # (C, H, W)
        return pixels.permute(1, 2, 0).numpy()

    def name(self, i: int) -> str:
        return f"synthetic image {i}"
