"""Set Lightning's progress counters from the one number that says where a run is."""

from typing import Any

import pytorch_lightning as pl


def build_loop_state(trainer: pl.Trainer, global_step: int, steps_per_epoch: int) -> dict[str, Any]:
    """Return Lightning's progress counters for a run that has done exactly `global_step` optimizer steps, with the
    validations that were due by then."""
    fit_loop: dict[str, Any] = trainer.fit_loop.state_dict()
    epoch, step = divmod(global_step, steps_per_epoch)
    accumulation = trainer.accumulate_grad_batches

    def count(current: int, total: int, *names: str) -> dict[str, dict[str, int]]:
        return {"current": dict.fromkeys(names, current), "total": dict.fromkeys(names, total)}

    whole = ("ready", "started", "processed", "completed")
    epochs = count(epoch, epoch, *whole)
    if step:  # in the midst of an epoch, which has started
        for part in epochs.values():
            part["ready"] = part["started"] = epoch + 1
    fit_loop["epoch_progress"].update(epochs)
    batches = count(step * accumulation, global_step * accumulation, *whole)
    fit_loop["epoch_loop.batch_progress"].update({**batches, "is_last_batch": False})
    fit_loop["epoch_loop.scheduler_progress"].update(count(step, global_step, "ready", "completed"))
    optimizer = fit_loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    optimizer["step"].update(count(step, global_step, "ready", "completed"))
    optimizer["zero_grad"].update(count(step, global_step, "ready", "started", "completed"))
    fit_loop["epoch_loop.state_dict"]["_batches_that_stepped"] = global_step
    return fit_loop
