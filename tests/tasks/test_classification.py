"""What classification scores."""

from functools import partial

import pytest
import torch
from test_multilabel import task_of
from torchmetrics.functional.classification import multiclass_calibration_error

from vitlab.losses import keep_in_evaluation
from vitlab.tasks import Classification


@keep_in_evaluation("gamma")
def lacks_a_default(logits, target, *, gamma, smoothing):
    return logits.logsumexp(dim=1) + gamma + smoothing


def takes_the_target_first(target, logits):
    return torch.nn.functional.cross_entropy(logits, target, reduction="none")


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (
            partial(lacks_a_default, gamma=2.0, smoothing=0.1),
            r"the loss test_classification\.lacks_a_default fails in evaluation, with gamma: .* missing 1 required "
            "keyword-only argument: 'smoothing'",
        ),
        (
            partial(takes_the_target_first),
            r"the loss test_classification\.takes_the_target_first fails in training, with no options: .*; it is called"
            r" with logits \(B, K\), a target",
        ),
    ],
    ids=["a loss that evaluation cannot call", "arguments in the wrong order"],
)
def test_a_loss_that_fails_is_named_before_the_first_batch(loss, sentence):
    with pytest.raises(ValueError, match=sentence):
        task_of(Classification, loss)


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
