"""What is minimised, and how it is judged: one LightningModule for each way to train."""

from vitlab.tasks.answering import Answering
from vitlab.tasks.classification import Classification
from vitlab.tasks.contrastive import Contrastive
from vitlab.tasks.distillation import Distillation
from vitlab.tasks.linear_probe import LinearProbe
from vitlab.tasks.masked_autoencoding import MaskedAutoencoding
from vitlab.tasks.multilabel import MultilabelClassification
from vitlab.tasks.self_distillation import SelfDistillation
from vitlab.tasks.supervised import Predictions
from vitlab.tasks.task import Task
from vitlab.tasks.text_generation import TextGeneration

__all__ = [
    "Answering",
    "Classification",
    "Contrastive",
    "Distillation",
    "LinearProbe",
    "MaskedAutoencoding",
    "MultilabelClassification",
    "Predictions",
    "SelfDistillation",
    "Task",
    "TextGeneration",
]
