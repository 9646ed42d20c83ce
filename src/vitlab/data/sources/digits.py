"""scikit-learn's handwritten digits: 1,797 real images of 8x8 pixels in 17 grays, inside its wheel.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998.
"""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vitlab.data.pools.pool import ArrayPool, Pool, Source
from vitlab.data.targets import OneClass
from vitlab.errors import DataError


class Digits(Source):
    """One pool of 1,797 grayscale images; its splits are carved. The file is read directly: importing scikit-learn
    takes seconds, reading its 57 kB a fifth of one."""

    in_chans = 1

    def __init__(self) -> None:
        self.class_names = [str(digit) for digit in range(10)]

    def open(self) -> dict[str, Pool]:
        spec = find_spec("sklearn")
        if spec is None or spec.origin is None:
            raise DataError("data=digits reads the file inside scikit-learn, which is not installed: make setup")
        path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.int64)  # (1797, 65): 64 pixels from 0 to 16, and the class
        pixels = np.round(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
        return {"train": ArrayPool(pixels, OneClass(table[:, -1].copy()), "digits")}
