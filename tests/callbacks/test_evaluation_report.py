"""What the report of a test says of each sample, in whatever batches they came."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.callbacks import EvaluationReport
from vitlab.data.batches.batch import Batch, Sample, View
from vitlab.data.targets import OneClass, multi_hot

NAMES = ["ant", "bee", "cat"]
LOGITS = torch.tensor([[2.0, -1, 0.5], [-3, 1, 4], [-1, -2, -3], [1, 2, 3.0]])
LOSS = torch.tensor([0.5, 3.0, 1.0, 2.0])


class Split:
    """Four gray images."""

    def __init__(self, targets):
        self.targets = targets

    def name(self, index):
        return f"image {index}"

    def get_question(self, index):
        return ""

    def __getitem__(self, key):
        return Sample((torch.full((1, 4, 4), 10 * key[1], dtype=torch.uint8),), key[1])


def reported(tmp_path, targets, probabilities):
    """The table, of batches that come in another order than the samples, and what a logger was told."""
    split = Split(targets)
    tables = {}
    datamodule = SimpleNamespace(
        class_names=NAMES,
        splits={"test": split},
        test_split="test",
        targets=targets,
        get_evaluation_split=lambda name: split,
    )
    logger = SimpleNamespace(
        log_image=lambda **about: None, log_table=lambda key, columns, data: tables.setdefault(key, (columns, data))
    )
    trainer = SimpleNamespace(
        datamodule=datamodule,
        is_global_zero=True,
        default_root_dir=str(tmp_path),
        loggers=[logger],
        global_step=0,
    )
    module = SimpleNamespace(probabilities=probabilities)
    callback = EvaluationReport(num_worst=2)
    callback.on_test_start(trainer, module)
    for places in ([3, 0], [1, 2]):
        target = targets[places].collate()
        batch = Batch((View(torch.empty(2, 0)),), target, torch.tensor(places))
        callback.on_test_batch_end(trainer, module, {"predictions": (LOGITS[places], LOSS[places])}, batch, 0)
    callback.on_test_batch_end(trainer, module, None, batch, 0)
    callback.on_test_end(trainer, module)
    with open(tmp_path / "test_predictions.csv", newline="") as file:
        return list(csv.DictReader(file)), tables["test_worst_predictions_table"]


@pytest.mark.parametrize("several", [False, True])
def test_every_sample_has_its_line_and_the_worst_are_told(tmp_path, several):
    if several:
        targets = multi_hot([[0], [1, 2], [], [2]], 3)
        rows, (columns, worst) = reported(tmp_path, targets, torch.sigmoid)
        assert [row["true"] for row in rows] == ["ant", "bee, cat", "none", "cat"]
        said = [[float(row[name]) for name in NAMES] for row in rows]
        np.testing.assert_allclose(said, LOGITS.sigmoid(), atol=1e-6)
    else:
        targets = OneClass(np.array([0, 1, 0, 2]))
        rows, (columns, worst) = reported(tmp_path, targets, lambda logits: logits.softmax(dim=1))
        assert [row["true"] for row in rows] == ["ant", "bee", "ant", "cat"]
        assert [row["predicted"] for row in rows] == ["ant", "cat", "ant", "cat"]
        expected = LOGITS.softmax(dim=1).amax(dim=1)
        np.testing.assert_allclose([float(row["probability"]) for row in rows], expected, atol=1e-6)
    assert [row["index"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["name"] for row in rows] == [f"image {i}" for i in range(4)]
    assert [float(row["loss"]) for row in rows] == LOSS.tolist()
    assert columns == list(rows[0])
    assert [row[0] for row in worst] == [1, 3]
    pictures = {path.name for path in tmp_path.rglob("*.png")}
    own = {"test_average_precision.png"} if several else {"test_confusion_matrix.png", "test_reliability.png"}
    assert pictures == {"test_worst_predictions.png", *own}
    for path in tmp_path.rglob("*.png"):
        assert np.asarray(Image.open(path).convert("L")).std() > 5
