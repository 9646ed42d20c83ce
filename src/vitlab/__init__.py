"""vitlab: train, study and ship Vision Transformers.

run = vitlab.load("runs/NAME/TIME")     open a run: run.predict("photo.jpg"), run.features(images), run.model
run = vitlab.train(root=DIR, model="vit_s16")      train a model on folders of images
model = vitlab.create_model("vit_b16", num_classes=3)      build one by the name of its config
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":  # locks of run folders, forked jobs and the signals that save a run are POSIX
    raise ImportError("vitlab runs on Linux and macOS; on Windows use it inside WSL 2")

if TYPE_CHECKING:
    from vitlab.data import ImageDataModule as ImageDataModule
    from vitlab.errors import VitlabError as VitlabError
    from vitlab.interface import Prediction as Prediction
    from vitlab.interface import Run as Run
    from vitlab.interface import create_model as create_model
    from vitlab.interface import load as load
    from vitlab.interface import train as train
    from vitlab.models import VisionTransformer as VisionTransformer

__version__ = "0.2.0.dev0"
ORIGINS = {  # where the names come from, which load when they are first asked for
    "vitlab.data": ("ImageDataModule",),
    "vitlab.errors": ("VitlabError",),
    "vitlab.interface": ("Prediction", "Run", "create_model", "load", "train"),
    "vitlab.models": ("VisionTransformer",),
}
__all__ = [name for names in ORIGINS.values() for name in names]


def __getattr__(name: str) -> Any:
    for origin, names in ORIGINS.items():
        if name in names:
            return getattr(importlib.import_module(origin), name)
    raise AttributeError(f"vitlab has no {name}; it has {', '.join(sorted(__all__))}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
