"""What is told of a metric by its name alone."""

import pytest

from vitlab.monitors import format_metric


@pytest.mark.parametrize(
    "metric",
    ["val/acc1", "best val/acc1", "acc5", "val/5shot_acc1", "val/acc1_lr_0.1", "test/map", "test/f1", "test/ece"],
)
def test_shares_are_percent(metric):
    assert format_metric(metric, 0.1236) == "12.36%"


@pytest.mark.parametrize("metric", ["val/loss", "train/grad_norm", "val/loss_lr_0.1", "val/account"])
def test_all_else_is_a_number(metric):
    assert format_metric(metric, 0.12361) == "0.1236"
