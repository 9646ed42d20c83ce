"""The files of a bundle, and its index."""

import hashlib
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_json

FORMAT = 1
INDEX = "bundle.json"
CARD = "README.md"
LABELS, PREPROCESSING, CALIBRATION = "labels.json", "preprocessing.json", "calibration.json"
VOCABULARY = "vocabulary.json"  # the tokens of a model of texts
WEIGHTS, MODEL_CONFIG = "model.safetensors", "model.json"


def write_index(folder: Path, content: dict[str, Any]) -> None:
    """Write bundle.json, with size and SHA-256 of each other file."""
    files = sorted(path for path in folder.iterdir() if path.name != INDEX)
    listed = {path.name: {"size": path.stat().st_size, "sha256": compute_sha256(path)} for path in files}
    write_json(folder / INDEX, {"format": FORMAT, **content, "files": listed})


def compute_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
