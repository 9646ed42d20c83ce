"""Average the weights exponentially (Polyak & Juditsky, 1992, doi:10.1137/0330046)."""

from typing import Any

from vitlab.callbacks.weight_averaging import WeightAverage
from vitlab.errors import ConfigError
from vitlab.ranges import Decay, Natural


class EMA(WeightAverage):
    """θ̄ ← decay·θ̄ + (1 - decay)·θ after every optimizer step from `start_step` on."""

    def __init__(self, *, decay: Decay, start_step: Natural):
        super().__init__()
        self.decay = decay
        self.start_step = start_step

    def plan(self, num_steps: int) -> None:
        if self.start_step >= num_steps:
            raise ConfigError(
                f"callbacks.ema.start_step {self.start_step} is not before the end of the run of {num_steps} optimizer "
                "steps, so nothing would be averaged; make it smaller"
            )

    def is_due(self, step: int) -> bool:
        return step > self.start_step

    def can_continue(self, step: int, state: dict[str, Any]) -> bool:
        return self.is_due(step)

    def share(self, step: int) -> float:
        return 1 - self.decay
