"""Images and texts in one space, learned by contrast: CLIP (Radford et al., 2021, arXiv:2103.00020) and SigLIP (Zhai et
al., 2023, arXiv:2303.15343). A class is then told by a text, without having been learned as one.

B batch, M tokens of the longest text, K classes, T templates, F features
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MetricCollection

from vitlab.data.batches.batch import Batch
from vitlab.data.targets import CaptionBatch, ImageTextBatch, Texts
from vitlab.errors import ConfigError
from vitlab.losses import gather_pairs, sigmoid_contrastive, softmax_contrastive
from vitlab.models import ImageTextModel
from vitlab.models.image_text_model import MOST, ImageTextFeatures
from vitlab.tasks.retrieval import RECALLS, Retrieval, RetrievalSamples
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData
from vitlab.vocabulary import Vocabulary

CONTRASTS = {"softmax": softmax_contrastive, "sigmoid": sigmoid_contrastive}


class Contrastive(Task):
    """Each image is to be more like its own text than like those of all others in a batch, on all devices together.
    `contrast` is "softmax" over the batch, as CLIP, or "sigmoid" of each pair, as SigLIP.

    Evaluation is of the whole split: recalls among all its images and different texts, and, where images have one
    class, `zero_shot`: how many are most like the text of their class, the mean of what `templates` make of its name.
    Raises ValueError for another model or contrast, and ConfigError for a vocabulary of another size than the model's,
    and templates that have no place for a name.
    """

    model: ImageTextModel
    has_classes = True  # as far as is known before `plan`

    def __init__(self, *, model: nn.Module, vocabulary: Vocabulary, contrast: str, templates: list[str], **others: Any):
        if not isinstance(model, ImageTextModel):
            raise ValueError(f"the model is a {type(model).__name__}, which reads no texts; choose model=clip_xs8")
        if contrast not in CONTRASTS:
            raise ValueError(f"contrast '{contrast}' is not one of: {', '.join(CONTRASTS)}")
        rows = model.text.embed.tokens.num_embeddings
        if rows != len(vocabulary):
            raise ConfigError(
                f"model.text.vocab_size is {rows}, but the vocabulary has {len(vocabulary)} tokens; to find it, set "
                "data.vocab_size=null"
            )
        if not templates or not all("{}" in template for template in templates):
            raise ConfigError(f"task.templates {templates} must be texts that contain {{}} in the place of a name")
        self.vocabulary, self.max_length, self.templates = vocabulary, model.text.max_length, templates
        self.loss = CONTRASTS[contrast]
        super().__init__(model=model, **others)
        self.known: Tensor | None = None  # features of the classes of the data, (K, F)

    def monitors(self) -> list[str]:
        zero_shot = ["val/zero_shot"] if self.has_classes else []
        return ["val/loss", *zero_shot, *(f"val/{recall}" for recall in RECALLS)]

    def new_metrics(self, stage: str) -> MetricCollection:
        if stage == "fit":
            return MetricCollection({})
        width = self.model.text_projection.out_features
        return MetricCollection({"pairs": Retrieval(self.loss, self.max_length, width)})

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        assert isinstance(datamodule.targets, Texts)
        self.has_classes = bool(datamodule.class_names)
        parts = datamodule.trainer.accumulate_grad_batches
        if parts > 1:
            raise ConfigError(
                f"the task compares the pairs of a whole batch, but this batch is cut into {parts} parts; set "
                "data.device_batch_size=null, or a smaller global_batch_size"
            )
        if datamodule.global_batch_size == 1:
            raise ConfigError(
                "the task compares the pairs of a batch, but this batch has a single pair; set global_batch_size=2, or "
                "larger"
            )
        if datamodule.trainer.world_size > 1 and datamodule.loading.on_bad_image == "skip":
            raise ConfigError(
                "every device must compare the same number of pairs; with several devices, set "
                "data.loading.on_bad_image=error"
            )

    def forward(self, batch: Batch) -> ImageTextFeatures:
        return self.model(self.pad_texts(batch.target.codes), batch.target.lengths, *batch.view.arguments())

    def pad_texts(self, codes: Tensor) -> Tensor:
        """Fill texts up to the length that the model was made for. (B, M) -> (B, max_length)"""
        return F.pad(codes, (0, self.max_length - codes.shape[1]), value=self.vocabulary.special.padding)

    def training_losses(self, batch: Batch) -> Tensor:
        found = self(batch)
        return self.loss(gather_pairs(found.image, found.text), found.scale, found.bias)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Keep the scale at 100 at most (CLIP, section 2.5)."""
        super().optimizer_step(*args, **kwargs)
        with torch.no_grad():
            self.model.logit_scale.clamp_(max=MOST)  # of a sharded model this device's part, after a backward pass

    # -- evaluation

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self.known = None

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self.known = None

    def evaluate_batch(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        """The loss is known once all pairs are: the metric gives it."""
        found, codes = self(batch), self.pad_texts(batch.target.codes)
        images = batch.target.images if isinstance(batch.target, ImageTextBatch) else batch.index
        told = isinstance(batch.target, CaptionBatch)
        meanings, names = (batch.target.meanings, self.trainer.datamodule.class_names) if told else (images, [])
        right = torch.full_like(batch.index, float("nan"), dtype=torch.float32)
        if names:
            if self.known is None:
                self.known = self.embed_classes(names)
            said = (found.image @ self.known.T).argmax(dim=1)
            right = (said == meanings).float().where(meanings < len(names), right)
        scored = RetrievalSamples(found.image, found.text, codes, meanings, images, batch.index, right)
        self.metrics[stage]["pairs"].update(scored, found.scale, found.bias)
        return torch.zeros_like(batch.index, dtype=torch.float32), {}

    def scores(self, stage: str) -> dict[str, Tensor]:
        values = super().scores(stage)
        return values if self.trainer.datamodule.class_names else {k: v for k, v in values.items() if k != "zero_shot"}

    def embed_classes(self, names: Sequence[str]) -> Tensor:
        """The features of classes: of each the mean over its name in all templates, of length 1 (CLIP, section 3.1.4).
        Raises DataError, which names it, for a word that the vocabulary does not know. -> (K, F)"""
        texts = [template.replace("{}", name) for name in names for template in self.templates]
        batch = Texts(texts, self.vocabulary).collate()
        device = self.model.logit_scale.device
        if batch.codes.shape[1] > self.max_length:
            longest = max(texts, key=lambda text: len(self.vocabulary.encode(text)))
            raise ConfigError(f"the text '{longest}' has more than the {self.max_length} tokens that the model reads")
        features = self.model.encode_texts(self.pad_texts(batch.codes).to(device), batch.lengths.to(device))  # (K·T, F)
        return F.normalize(features.unflatten(0, (len(names), -1)).mean(dim=1), dim=1)

    def zero_shot(self, names: Sequence[str]) -> "ZeroShot":
        """Make a classifier of names. Raises as `embed_classes`."""
        return ZeroShot(self.model, self.embed_classes(names))


class ZeroShot:
    """Classify images by the features of texts (K, F), which nobody trained it on."""

    def __init__(self, model: ImageTextModel, classes: Tensor):
        self.model, self.classes = model, classes

    def __call__(self, *inputs: Any) -> Tensor:
        """Give logits of images, or of patches and their grid. -> (B, K)"""
        return self.model.logit_scale.exp() * self.model.encode_images(*inputs) @ self.classes.T

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each class, one of which is right. (B, K) -> (B, K)"""
        return logits.float().softmax(dim=1)
