"""vitlab from Python: open a run and use its model, train a new one, build a model by the name of its config.

B images, C channels, H W image height and width, D features, h heads, T tokens (the class token, registers, patches)
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image as PillowImage
from torch import Tensor, nn

from vitlab.commands import program
from vitlab.config.command import refusals
from vitlab.config.in_process import call, compose, format_overrides
from vitlab.config.nodes import resolve_config
from vitlab.config.trust import trusting
from vitlab.data import ImageDataModule
from vitlab.errors import ConfigError, DataError
from vitlab.machine import find_fastest_device
from vitlab.models import find_encoder, represent
from vitlab.out_of_memory import refuse_out_of_memory, suggest_half
from vitlab.reports.run import read_result
from vitlab.run.building.model import build_model, load_pretrained
from vitlab.run.inference.classification import choose_names, classifier
from vitlab.run.inference.given_images import list_images, load_pixels, prepare_images
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks import Contrastive, Task, TextGeneration
from vitlab.tasks.predictions import Prediction as Prediction
from vitlab.tasks.predictions import rank_classes
from vitlab.tasks.supervised import Supervised
from vitlab.views import capture_attention

Image: TypeAlias = str | Path | PillowImage.Image | np.ndarray | Tensor
Images: TypeAlias = Image | Sequence[Image]


class Run:
    """A run and its model, the best one it has kept. The methods raise VitlabError.

    `images` are one or several: names of files, or a folder or pattern that names them ("photos/*.jpg"), Pillow's
    images, arrays (H, W) or (H, W, C), tensors (H, W) or (C, H, W), a batch of one of these, or a list. Pixels are
    uint8, or floats from 0 to 1, not normalised; size and colours may be any: an image is brought to what the model
    takes as in the run's own evaluation.
    """

    def __init__(self, run: str | Path, device: str | torch.device | None = None, trust: Sequence[str] = ()):
        self._trust = trust
        with trusting(trust):
            self._saved = SavedRun.open(str(run))
        self.device = torch.device(device or find_fastest_device())

    def __repr__(self) -> str:
        return f"vitlab.load({str(self.path)!r})"

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._saved.folder

    @property
    def path(self) -> Path:
        """The checkpoint that the weights are of."""
        return self._saved.path

    @property
    def config(self) -> dict[str, Any]:
        """The config that the run was trained with."""
        return resolve_config(self._saved.config)

    @property
    def class_names(self) -> list[str]:
        """The classes, in the order of the model's logits."""
        return list(self._saved.checkpoint["run"]["class_names"])

    @property
    def result(self) -> dict[str, Any] | None:
        """Result of the run: score, steps, seconds, and the metrics of its test; None for one that has not ended."""
        return read_result(self.folder)

    @property
    def model(self) -> nn.Module:
        """The model in evaluation mode, on `device`: run.model(run.inputs(images)) are logits (B, K)."""
        return self._task.model

    @property
    def temperature(self) -> float:
        """By which `predict` divides logits for probabilities: fitted on validation; 1.0 for other checkpoints."""
        return self._saved.temperature or 1.0

    @functools.cached_property
    def _task(self) -> Task:
        with refusals(), trusting(self._trust):
            task: Task = self._saved.task().to(self.device).eval()
            return task

    @functools.cached_property
    def _datamodule(self) -> ImageDataModule:
        with refusals(), trusting(self._trust):
            if self._saved.input_vocabulary is not None:
                raise ConfigError(f"{self.path} reads texts, not images; use the command predict with texts=")
            datamodule: ImageDataModule = self._saved.datamodule()
            return datamodule

    @refusals()
    def inputs(self, images: Images) -> Tensor:
        """Images as the model takes them: normalised (B, C, H, W), on `device`."""
        if self._datamodule.images.eval_crop.output_size() is None:
            raise ConfigError(
                f"{self.path} was evaluated on images of different sizes, which cannot form one tensor (B, C, H, W)"
            )
        pixels = torch.stack([load_pixels(image, self._datamodule) for image in list_images(images)])
        return self._datamodule.preprocessing.to(self.device).normalize(pixels.to(self.device))

    @refusals()
    def predict(
        self,
        images: Images,
        *,
        labels: Sequence[str] | None = None,
        top_k: int = 5,
        batch_size: int = 32,
        skip_unreadable: bool = False,
    ) -> list[Prediction]:
        """Classify images: a prediction for each, with its `top_k` best classes. `labels` are names to tell them apart
        by, for a run of images and texts; None: the classes of the run. An image that cannot be read raises DataError;
        with `skip_unreadable`, a warning counts these, and all others have predictions."""
        names = choose_names(self._saved, labels)
        if isinstance(self._task, TextGeneration):
            raise ConfigError(f"{self.path} writes texts and does not predict classes; use the command predict")
        if not isinstance(self._task, Supervised | Contrastive):
            raise ConfigError(
                f"{self.path} was trained without classes; fine-tune a model from it with model.pretrained={self.path}"
            )
        if top_k < 1:
            raise ConfigError(f"top_k {top_k} is not at least 1")
        given, told = list_images(images), classifier(self._task, names)

        def classify(*inputs: Any) -> Tensor:
            parts = told.classify(*inputs) if isinstance(told, Supervised) else [told(*inputs)]
            return torch.column_stack([part for part in parts if part is not None])

        computed, unreadable = self._compute(classify, given, batch_size, skip_unreadable)
        files = [image if isinstance(image, Path) else None for k, image in enumerate(given) if k not in unreadable]
        logits, *novelty = computed.split(len(names), dim=1)
        unlike = novelty[0][:, 0] if novelty else None
        return list(rank_classes(told.probabilities(logits), names, top_k, files, unlike))

    @refusals()
    def features(self, images: Images, *, batch_size: int = 32) -> Tensor:
        """Compute the features that the head reads of each image: (B, D), float32, on the CPU."""
        return self._compute(functools.partial(represent, self.model), list_images(images), batch_size)[0].float()

    @refusals()
    def attention(self, images: Images) -> list[Tensor]:
        """Tell how much each token looks at each: for every layer (B, h, T, T), on the CPU. A row is a distribution
        over the tokens, the last of which are the patches, row by row."""
        encoder = find_encoder(self.model)
        if encoder is None and isinstance(self._task, TextGeneration):
            raise ConfigError(
                f"a {type(self.model).__name__} also reads texts; use the command visualize with views=reading"
            )
        if encoder is None:
            raise ConfigError(f"a {type(self.model).__name__} has no attention; load a run of a ViT")
        return capture_attention(encoder, self.inputs(images))

    def evaluate(self, split: str = "test", **options: Any) -> dict[str, float]:
        """Score the run on a split, train, val or test, as the command evaluate does, which also writes to the run's
        folder. `options` as in `train`: data={"source": {"root": DIR}} for other images. Returns the metrics."""
        own = {"run": self.path, "split": split, "trust": list(self._trust)}
        words = format_overrides({**own, **{f"++{key}": value for key, value in options.items()}})
        metrics: dict[str, float] = call("evaluate", functools.partial(program, "evaluate"), words)
        return metrics

    def _compute(
        self, function: Callable[..., Tensor], given: list[Any], batch_size: int, skip_unreadable: bool = False
    ) -> tuple[Tensor, set[int]]:
        """Compute a function of images, `batch_size` at once, on the CPU; and give the places of skipped ones."""
        if batch_size < 1:
            raise ConfigError(f"batch_size {batch_size} is not at least 1")
        found, unreadable = [], {}
        for start in range(0, len(given), batch_size):
            pixels = []
            for place, image in enumerate(given[start : start + batch_size], start):
                try:
                    pixels.append(load_pixels(image, self._datamodule))
                except DataError as error:
                    if not skip_unreadable:
                        raise
                    unreadable[place] = error
            with torch.no_grad(), refuse_out_of_memory(lambda: suggest_half("batch_size", batch_size)):
                if pixels:
                    found.append(function(*prepare_images(pixels, self._datamodule, self.device).arguments()).cpu())
        if not found:
            raise DataError(f"none of {len(given)} images can be read: {next(iter(unreadable.values()))}")
        if unreadable:
            first = next(iter(unreadable.values()))
            warnings.warn(f"{len(unreadable)} of {len(given)} images are left out: {first}", stacklevel=4)
        return torch.cat(found), set(unreadable)


@refusals()
def load(run: str | Path, *, device: str | torch.device | None = None, trust: Sequence[str] = ()) -> Run:
    """Open a run, by its folder (the best model in it) or one of its checkpoints. `device`: where the model computes,
    such as "cpu"; None: a GPU if there is one. `trust` names packages of yours whose code the run needs. Raises
    CheckpointError where there is no run, or a damaged one, and ConfigError for a run that needs other code."""
    return Run(run, device, [trust] if isinstance(trust, str) else trust)


def train(*words: str, root: str | Path | None = None, **options: Any) -> Run:
    """Train a model in this process, as the command train does; returns the run.

    `options` are the groups and keys of the command line: model="vit_b16", callbacks=["default", "ema"], seed=1, keys
    of a group as trainer={"max_epochs": 3} or **{"trainer.max_epochs": 3}; `words` are overrides as they are typed
    there: "~callbacks.ema". `root` is the folder of your images, data.source.root, which holds class folders where no
    data= says otherwise. One device learns, unless trainer= or trainer.devices names more. A run that did not end goes
    on by resume=FOLDER. Raises VitlabError before the first batch for what would be refused.
    """
    for word in words:
        if word.startswith("-") or not ("=" in word or word.startswith("~")):
            raise ConfigError(f"{word!r} is not an override of the form KEY=VALUE; start sweeps (-m) from a shell")
    given = [*format_overrides(options), *words]
    if root is not None:
        given += format_overrides({"data.source.root": root})
        given += [] if any(word.startswith("data=") for word in given) else ["data=folder"]
    if not any(word.lstrip("+").startswith(("trainer=", "trainer.devices=", "resume=")) for word in given):
        given.append("trainer.devices=1")

    return load(call("train", functools.partial(program, "train"), given), trust=options.get("trust", ()))


def create_model(
    name: str,
    /,
    *,
    num_classes: int = 1000,
    image_size: int = 224,
    in_chans: int = 3,
    pretrained: str | Path | None = None,
    **options: Any,
) -> nn.Module:
    """Build a model by the name of its config, model=NAME of the command line, for images (B, C, H, W) of `image_size`
    pixels; it gives logits (B, num_classes).

    `options` are the keys of its config: position="sincos_2d", drop_path_rate=0.1. `pretrained` is a run, a file or
    folder of weights, timm:NAME or hf:ORG/NAME, and what became of its tensors is printed; a head for other classes
    starts anew, and with pretrained_head=False any. Raises ConfigError for an unknown name or key,
    CheckpointError for weights that cannot be read or do not fit, and for a head that reads something else.
    """
    data = {"num_classes": num_classes, "image_size": image_size, "in_chans": in_chans}
    words = format_overrides({"model": name, "data": data, "model.pretrained": pretrained})
    cfg = compose("summary", words + format_overrides({"model": options}))
    with refusals():
        model = build_model(cfg.model)
        if (report := load_pretrained(model, cfg.model)) is not None:
            report.show()
    return model
