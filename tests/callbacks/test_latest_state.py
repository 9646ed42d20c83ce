from types import SimpleNamespace

import pytest
from torch import nn

from vitlab.callbacks import LatestState


@pytest.mark.parametrize(
    ("validated", "num_steps", "saved"),
    [(1, 12, [2, 4, 6, 8, 10, 12]), (3, 12, [6, 12]), (4, 12, [8, 12]), (None, 12, [12])],
)
def test_saved_is_where_an_epoch_ends_in_a_validation_and_at_the_end(validated, num_steps, saved, tmp_path):
    """Epochs of two steps: those that bring no validation are not worth a file each."""
    found = []
    task = nn.Linear(1, 1)
    task.num_steps = num_steps
    trainer = SimpleNamespace(
        check_val_every_n_epoch=validated,
        enable_validation=True,
        should_stop=False,
        fast_dev_run=False,
        global_step=0,
        lightning_module=task,
        default_root_dir=str(tmp_path),
        save_checkpoint=lambda path, weights_only, storage_options: found.append(trainer.global_step),
    )
    latest = LatestState(every_n_steps=500)
    latest.on_train_start(trainer, task)
    for epoch in range(num_steps // 2):
        trainer.current_epoch, trainer.global_step = epoch, 2 * epoch + 2
        latest.on_train_epoch_end(trainer, task)
    assert found == saved
