"""Tasks: LightningModules that join a model with its loss, its metrics and its optimizer."""

from vitlab.tasks.classification import Classification

__all__ = ["Classification"]
