"""Open a bundle: check its files, and start its model in ONNX Runtime.

B images, C channels, K classes, S image_size
"""

import hashlib
import json
import os
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vitlab_runtime.errors import BundleError
from vitlab_runtime.pixels import Preprocessing

FORMAT = 1
TASKS = ("classification", "multilabel")  # which have classes
AGAIN = "copy or export the bundle again"
READ = ("labels.json", "preprocessing.json", "model.onnx")


@dataclass(frozen=True)
class Bundle:
    """A checked bundle with its running model, whose `outputs` are probabilities, and novelty if the run tells it."""

    labels: list[str]
    preprocessing: Preprocessing
    session: Any
    outputs: list[str]

    def score(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the outputs, (B, K) and (B,), of images (B, C, S, S) in uint8."""
        found = self.session.run(self.outputs, {"pixels": self.preprocessing.normalize(pixels)})
        return dict(zip(self.outputs, found, strict=True))


def read_manifest(folder: Path) -> tuple[bytes, str]:
    """Read bundle.json, which lists the digests of the other files, and compute its own. Raises BundleError."""
    try:
        content = (folder / "bundle.json").read_bytes()
    except OSError as error:
        raise BundleError(f"{folder} is not a bundle: bundle.json cannot be read ({error.strerror})") from error
    return content, hashlib.sha256(content).hexdigest()


@cache  # without a limit: a forked process that drops a session waits for ever for its threads
def open_bundle(folder: Path, digest: str, threads: int, process: int) -> Bundle:
    """Open the bundle whose bundle.json has this digest, once in the process with this id. Raises BundleError."""
    import onnxruntime  # here, so that a wrong command line need not wait for it

    content, found = read_manifest(folder)
    if found != digest:
        raise BundleError(f"{folder} is not the bundle that the predictor was loaded from; load it again")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4  # its errors are raised, too
    try:
        manifest = json.loads(content)
        check_use(folder, manifest["format"], manifest["task"])
        for name in {*READ, *(name for name in manifest["files"] if name.startswith(READ))}:
            check_file(folder / name, **manifest["files"][name])
        labels, values = (json.loads((folder / name).read_bytes()) for name in READ[:2])
        preprocessing = Preprocessing(**{field.name: values[field.name] for field in fields(Preprocessing)})
        session = onnxruntime.InferenceSession(folder / READ[2], options, providers=["CPUExecutionProvider"])
        shapes = {put.name: put.shape[1:] for put in (*session.get_inputs(), *session.get_outputs())}
        own, C, S = (shapes["pixels"], shapes["probabilities"]), preprocessing.channels, preprocessing.image_size
        if own != ([C, S, S], [len(labels)]):
            raise ValueError(f"model.onnx has {own} pixels and classes, not {[C, S, S]} and {len(labels)} labels")
    except BundleError:
        raise
    except Exception as error:  # the libraries have a dozen classes for what is wrong in a file
        raise BundleError(f"{folder} cannot be used ({' '.join(repr(error).split())}); {AGAIN}") from error
    return Bundle(labels, preprocessing, session, [name for name in ("probabilities", "novelty") if name in shapes])


def check_use(folder: Path, found: int, task: str) -> None:
    """Raise BundleError for another format than this version reads, and for a task without classes."""
    if found != FORMAT:
        answer = "upgrade vitlab-runtime" if found > FORMAT else "export the run again"
        raise BundleError(f"{folder} has the format {found}, but this vitlab-runtime reads {FORMAT}; {answer}")
    if task not in TASKS:
        raise BundleError(f"{folder} is of the task {task}, but only {' and '.join(TASKS)} have classes to predict")


def check_file(path: Path, size: int, sha256: str) -> None:
    """Raise BundleError unless a file is the one that bundle.json lists."""
    try:
        with open(path, "rb") as file:
            same = os.fstat(file.fileno()).st_size == size and hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}; {AGAIN}") from error
    if not same:
        raise BundleError(f"{path} is not the file that bundle.json lists; {AGAIN}")
