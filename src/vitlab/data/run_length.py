"""Count the optimizer steps of a run."""

from typing import Any

from vitlab.errors import ConfigError


def planned_steps(trainer: Any, steps_per_epoch: int) -> int:
    """Count the optimizer steps of the whole run, from trainer.max_epochs and trainer.max_steps. Raises ConfigError for
    a run without an end, and for one that max_epochs ends before max_steps."""
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs * steps_per_epoch)
    if trainer.max_steps >= 0:
        limits.append(trainer.max_steps)
        if trainer.max_steps > limits[0] and not trainer.fast_dev_run:
            raise ConfigError(
                f"trainer.max_steps {trainer.max_steps:,} is more than the {limits[0]:,} steps of "
                f"trainer.max_epochs {trainer.max_epochs}; set trainer.max_epochs=-1 to end by steps, or "
                "trainer.max_steps=-1 to end by epochs"
            )
    if not limits:
        raise ConfigError("a run needs an end: set trainer.max_epochs or trainer.max_steps")
    return min(limits)
