"""What is logged every few steps, and what is said where the loss is no number."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from vitlab.callbacks import StepLog
from vitlab.errors import NonFiniteError
from vitlab.losses import softmax_cross_entropy


def undefined(logits, target):
    return logits.sum(dim=1) * torch.nan


@pytest.mark.parametrize(("loss", "own"), [(undefined, True), (softmax_cross_entropy, False)])
def test_a_loss_of_the_user_is_named_where_it_is_not_finite(loss, own):
    task = SimpleNamespace(
        loss=partial(loss),
        training_metrics=lambda: {"train/loss": torch.nan},
        last_lr=lambda: 0.1,
        device=torch.device("cpu"),
    )
    datamodule = SimpleNamespace(global_batch_size=1, count_steps_per_epoch=lambda: 1)
    trainer = SimpleNamespace(global_step=10, datamodule=datamodule, loggers=[], default_root_dir="my runs/1")
    log = StepLog()
    with pytest.raises(NonFiniteError, match=r"lower optimizer\.lr") as raised:
        log._log(trainer, task)
    assert ("or look at test_step_log.undefined, which gives it" in str(raised.value)) == own
    assert "replay" in str(raised.value)
    assert str(raised.value).endswith("'run=my runs/1'")
