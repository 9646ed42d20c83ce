"""What classification scores."""

import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from vitlab.tasks.classification import CalibrationError


def test_logits_between_zero_and_one_are_no_probabilities():
    torch.manual_seed(0)
    logits, target = torch.rand(40, 3), torch.randint(3, (40,))
    error = CalibrationError(3, n_bins=15, norm="l1")
    for part in (slice(0, 1), slice(1, 40)):
        error.update(logits[part], target[part])
    expected = multiclass_calibration_error(logits.softmax(dim=1), target, 3, n_bins=15, norm="l1")
    torch.testing.assert_close(error.compute(), expected)
    taken_for_probabilities = multiclass_calibration_error(logits, target, 3, n_bins=15, norm="l1")
    assert abs(float(expected - taken_for_probabilities)) > 0.01
