"""What the model says of each test sample, and where it is most wrong."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torchmetrics.functional.classification import multiclass_confusion_matrix

from vitlab.callbacks.figures import confusion_figure, image_grid, save_figure

COLUMNS = ["index", "name", "true", "predicted", "probability", "loss"]


class EvaluationReport(Callback):
    """For the split that is tested: <split>_predictions.csv with every sample, the confusion matrix, and the
    `num_worst` samples of the highest loss as a picture and a table. Indices are exact up to 2^24 samples."""

    def __init__(self, *, num_worst: int):
        if num_worst < 1:
            raise ValueError(f"num_worst {num_worst} is not at least 1")
        self.num_worst = num_worst
        self.rows: list[torch.Tensor] = []

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.rows = []

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if outputs is None:  # no image of this batch could be read
            return
        logits, loss = outputs["predictions"]
        probability, predicted = logits.softmax(dim=1).max(dim=1)
        columns = (batch.index, batch.target, predicted, probability, loss)
        self.rows.append(torch.stack([column.float() for column in columns], dim=1))  # stays on the device

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        table = gathered(torch.cat([torch.empty(0, len(COLUMNS) - 1), *[rows.cpu() for rows in self.rows]]).numpy())
        if not trainer.is_global_zero or not len(table):
            return
        table = table[table[:, 0].argsort()]
        assert len(np.unique(table[:, 0])) == len(table), "a test sample was scored twice"
        datamodule = trainer.datamodule
        names, split = datamodule.class_names, datamodule.splits[datamodule.test_split]
        rows = [
            [int(i), split.name(int(i)), names[int(true)], names[int(predicted)], round(p, 6), round(loss, 6)]
            for i, true, predicted, p, loss in table.tolist()
        ]
        with open(Path(trainer.default_root_dir) / f"{datamodule.test_split}_predictions.csv", "w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])
        self._draw(trainer, table, rows)

    def _draw(self, trainer: pl.Trainer, table: np.ndarray, rows: list[list[Any]]) -> None:
        datamodule = trainer.datamodule
        split, names = datamodule.test_split, datamodule.class_names
        matrix = multiclass_confusion_matrix(
            torch.from_numpy(table[:, 2]).long(), torch.from_numpy(table[:, 1]).long(), num_classes=len(names)
        ).numpy()
        wrong = int(matrix.sum() - matrix.trace())
        heading = f"{split}: {wrong} of {len(table)} wrong"
        save_figure(trainer, confusion_figure(matrix, names, heading), f"{split}_confusion_matrix")
        worst = table[:, 4].argsort()[::-1][: self.num_worst]
        dataset = datamodule.evaluated(split)
        images = [dataset[(0, int(table[i, 0]))].image / 255 for i in worst]
        titles = [f"{rows[i][2]}, said {rows[i][3]}\nwith {rows[i][4]:.2f}" for i in worst]
        figure = image_grid(images, titles, columns=8, heading=f"{split}: the highest losses")
        save_figure(trainer, figure, f"{split}_worst_predictions")
        for logger in trainer.loggers:
            if hasattr(logger, "log_table"):
                data = [rows[i] for i in worst]
                logger.log_table(key=f"{split}_worst_predictions_table", columns=COLUMNS, data=data)


def gathered(rows: np.ndarray) -> np.ndarray:
    """The rows of all ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return rows
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, rows)
    return np.concatenate(parts)
