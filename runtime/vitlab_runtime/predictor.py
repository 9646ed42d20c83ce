"""Predict the classes of a batch of images, by a callable that suits a loop as well as Ray Data, Spark and Daft.

B images, K classes, k the best of them
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitlab_runtime.bundle import open_bundle, read_manifest
from vitlab_runtime.errors import ImageError, Refusal


@dataclass(frozen=True)
class Predictor:
    """A callable from a batch to columns. It can be pickled, since it holds no model: each process opens the bundle at
    its first batch, and on another machine the bundle must be at the same path."""

    folder: Path
    digest: str
    threads: int
    top_k: int
    batch_size: int

    def __call__(self, batch: Mapping[str, Sequence[Any]] | Sequence[Any]) -> dict[str, np.ndarray]:
        """Predict the classes of a batch: a sequence of images, or columns with the images in "image". An image is a
        path, the bytes of a file, a Pillow image, or a uint8 array (H, W) or (H, W, C).

        Return the columns of the batch, without images that are no paths, and `class`, `probability`, `class_1`,
        `probability_1` and so on, `novelty` and `none_of_these` if the bundle can tell them, and `error`. It is the
        reason why an image cannot be read, and the other new columns are then "" or NaN; otherwise it is "".
        """
        columns = dict(batch.items()) if hasattr(batch, "items") else {"image": batch}
        images = columns.pop("image", None)
        if images is None or isinstance(images, str | bytes | os.PathLike | Image.Image):
            raise Refusal("a batch is a list of images, or a dict of columns with such a list in 'image'")
        if all(isinstance(image, str | os.PathLike) for image in images):
            columns["image"] = [os.fspath(image) for image in images]
        return {name: np.asarray(column) for name, column in columns.items()} | self.classify(list(images))

    def classify(self, images: list[Any]) -> dict[str, np.ndarray]:
        """Predict the classes of images, `batch_size` at a time."""
        bundle, B = open_bundle(self.folder, self.digest, self.threads, os.getpid()), len(images)
        K, k = len(bundle.labels), min(self.top_k, len(bundle.labels))
        places, values = np.full((B, k), K), np.full((B, k), np.nan, np.float32)
        novelty, errors = np.full(B, np.nan, np.float32), [""] * B
        with ThreadPoolExecutor(self.threads or None) as threads:
            for start in range(0, B, self.batch_size):
                loading = [threads.submit(bundle.preprocessing.load, im) for im in images[start:][: self.batch_size]]
                rows, pixels = [], []
                for row, one in enumerate(loading, start):
                    try:
                        pixels.append(one.result())
                        rows.append(row)
                    except ImageError as error:
                        errors[row] = str(error)
                if rows:
                    scores = bundle.score(np.stack(pixels))
                    places[rows] = np.argsort(-scores["probabilities"], axis=1, kind="stable")[:, :k]
                    values[rows] = np.take_along_axis(scores["probabilities"], places[rows], axis=1)
                    novelty[rows] = scores.get("novelty", np.nan)
        names = np.array([*bundle.labels, ""])[places]  # place K: an image that cannot be read
        columns = {"class": names[:, 0], "probability": values[:, 0]}
        for rank in range(k):
            columns |= {f"class_{rank + 1}": names[:, rank], f"probability_{rank + 1}": values[:, rank]}
        if "novelty" in bundle.outputs:
            answers = np.where(np.isnan(novelty), "", np.where(novelty > 1, "yes", "no"))
            columns |= {"novelty": novelty, "none_of_these": answers}
        return columns | {"error": np.array(errors, dtype=str)}


def load(bundle: str | os.PathLike[str], threads: int = 0, *, top_k: int = 5, batch_size: int = 32) -> Predictor:
    """Check a bundle and return its predictor, which tells the `top_k` best classes and scores `batch_size` images at
    once, by as many `threads` in each process (0: one for each core). Raises BundleError."""
    if not 0 <= threads <= 1024 or top_k < 1 or batch_size < 1:
        raise Refusal(f"threads={threads} must be 0 to 1024, and top_k={top_k} and batch_size={batch_size} at least 1")
    folder = Path(os.path.abspath(bundle))
    digest = read_manifest(folder)[1]
    open_bundle(folder, digest, threads, os.getpid())
    return Predictor(folder, digest, threads, top_k, batch_size)
