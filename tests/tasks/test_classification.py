"""What classification scores."""

import torch
from test_multilabel import task_of
from torchmetrics.functional.classification import multiclass_calibration_error

from vitlab.tasks import Classification


def test_logits_between_zero_and_one_are_no_probabilities():
    torch.manual_seed(0)
    logits, target = torch.rand(40, 10), torch.randint(10, (40,))
    task = task_of(Classification)
    for part in (slice(0, 1), slice(1, 40)):
        task.count("test", logits[part], target[part])
    expected = multiclass_calibration_error(logits.softmax(dim=1), target, 10, n_bins=15, norm="l1")
    torch.testing.assert_close(task.metrics["test"]["ece"].compute(), expected)
    taken_for_probabilities = multiclass_calibration_error(logits, target, 10, n_bins=15, norm="l1")
    assert abs(float(expected - taken_for_probabilities)) > 0.01
