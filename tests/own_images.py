"""Folders of images of a user's own, made from numbers."""

import numpy as np
from PIL import Image


def pngs(root, counts, make):
    """root/<class>/: as many images as `counts` says, made from a number."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            make(i).save(root / name / f"{i}.png")
    return root


def gray(i):
    return Image.fromarray(np.random.RandomState(i).randint(0, 256, (28, 30), dtype=np.uint8))


def colour(i, side=40):
    return Image.fromarray(np.random.RandomState(i).randint(0, 256, (side, side, 3), dtype=np.uint8))
