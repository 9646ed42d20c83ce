"""Report what the model predicts for each test sample, and where it is most wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from vitlab.atomic_files import write_csv
from vitlab.callbacks.figures import image_grid, reliability_figure, save_figure
from vitlab.callbacks.label_tables import ONE_CLASS, SEVERAL_CLASSES, LabelTable, build_text_table
from vitlab.callbacks.per_class import per_class, write_per_class_table
from vitlab.data import TextDataModule
from vitlab.data.targets import SeveralClasses, Texts
from vitlab.distributed.gathering import gather_from_all_ranks
from vitlab.ranges import Count
from vitlab.tasks.predictions import COLUMNS, DIGITS, compute_columns
from vitlab.tasks.supervised import Predictions


class EvaluationReport(Callback):
    """For the split that is tested: <split>_predictions.csv with every sample (and what was asked about it),
    <split>_per_class.csv where there are classes, a figure of the whole split (confusion matrix and reliability, the
    average precision of each class where an image may have several, or how many texts are right), and the `num_worst`
    samples of the highest loss as a picture and a table. Indices are exact up to 2^24 samples."""

    def __init__(self, *, num_worst: Count):
        self.num_worst = num_worst
        self.share_of_none: float | None = None  # of the samples, which are of none of the classes
        self.rows: list[torch.Tensor] = []

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.rows, self.share_of_none = [], None

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if outputs is None or "predictions" not in outputs:  # no image could be read, or the task names no classes
            return
        logits, loss, novelty = Predictions(*outputs["predictions"])
        kind, probabilities = choose_label_table(trainer), pl_module.probabilities(logits)
        further = list(compute_columns(probabilities).values()) if kind.has_classes else []
        further += [] if novelty is None else [novelty]
        columns = [batch.index.float(), loss.float(), *further, kind.columns(batch.target, probabilities)]
        self.rows.append(torch.column_stack(columns))  # stays on the device

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        parts = gather_from_all_ranks([rows.cpu().numpy() for rows in self.rows])
        if not trainer.is_global_zero or not parts:
            return
        table = np.concatenate(parts)
        table = table[table[:, 0].argsort()]
        further = list(COLUMNS) if choose_label_table(trainer).has_classes else []
        further += [] if getattr(pl_module, "known", None) is None else ["novelty"]
        index, loss, more, labels = np.split(table, [1, 2, 2 + len(further)], axis=1)
        index, loss = index[:, 0].astype(int), loss[:, 0]
        assert len(np.unique(index)) == len(index), "a test sample was scored twice"
        datamodule, kind = trainer.datamodule, choose_label_table(trainer)
        names, name = datamodule.class_names, datamodule.test_split
        split = datamodule.splits[name]
        asked = [[question] if (question := split.get_question(i)) else [] for i in index.tolist()]
        heads = ["index", "name", *(["question"] if any(asked) else []), *kind.heads(names), "loss", *further]
        numbers: list[list[Any]] = [
            [round(float(value), DIGITS) for value in row] for row in np.column_stack([loss, more])
        ]
        if further[-1:] == ["novelty"]:
            heads, unknown = [*heads, "none_of_these"], more[:, -1] > 1
            self.share_of_none = float(unknown.mean())
            numbers = [[*row, "yes" if none else "no"] for row, none in zip(numbers, unknown, strict=True)]
        rows = [
            [int(i), split.name(int(i)), *question, *kind.words(row, names), *own]
            for i, question, row, own in zip(index, asked, labels, numbers, strict=True)
        ]
        path = Path(trainer.default_root_dir) / f"{name}_predictions.csv"
        write_csv(path, heads, rows)
        answers = kind.answers(labels, len(names))
        if names and kind.has_classes:  # texts about images of named classes are no classes
            write_per_class_table(per_class(*answers), names, path.with_name(f"{name}_per_class.csv"))
        save_figure(trainer, kind.figure(labels, names, name), f"{name}_{kind.figure_name}")
        if kind is ONE_CLASS:
            right = labels[:, 0] == labels[:, 1]
            heading = f"{name}: how often predictions are right, by their probability"
            save_figure(trainer, reliability_figure(labels[:, 2], right, heading), f"{name}_reliability")
        worst = loss.argsort()[::-1][: self.num_worst]
        if not isinstance(datamodule, TextDataModule):
            dataset: Any = datamodule.get_evaluation_split(name)
            images = [dataset[(0, int(index[i]))].image / 255 for i in worst]
            titles = [
                "\n".join([Path(split.name(int(index[i]))).name, *asked[i], kind.title(labels[i], names)])
                for i in worst
            ]
            right = (answers[0] == answers[1]).all(axis=1)
            heading = f"{name}: the highest losses, {int((~right[worst]).sum())} of them wrong"
            figure = image_grid(images, titles, columns=8, heading=heading, marks=right[worst].tolist())
            save_figure(trainer, figure, f"{name}_worst_predictions")
        for logger in trainer.loggers:
            if hasattr(logger, "log_table"):
                logger.log_table(key=f"{name}_worst_predictions_table", columns=heads, data=[rows[i] for i in worst])


def choose_label_table(trainer: pl.Trainer) -> LabelTable:
    """Return what the report says of the labels of this trainer's data."""
    targets = trainer.datamodule.targets
    if isinstance(targets, Texts):
        assert targets.vocabulary is not None
        return build_text_table(targets.vocabulary)
    return SEVERAL_CLASSES if isinstance(targets, SeveralClasses) else ONE_CLASS
