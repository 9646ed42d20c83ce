"""Stochastic weight averaging (Izmailov et al., 2018, arXiv:1803.05407)."""

from typing import Any

from vitlab.callbacks.weight_averaging import WeightAverage
from vitlab.errors import ConfigError
from vitlab.ranges import Count, Rate


class SWA(WeightAverage):
    """The mean of the weights at every `every_n_steps`-th optimizer step, from `start_ratio` of the run on: the paper's
    algorithm 1, whose learning rate stays high (schedule=constant).

    A model with BatchNorm is evaluated with the running statistics of its newest weights, where the paper takes those
    of the mean from another pass over the data, so it does worse than it could; LayerNorm, as in ViTs, has none. A run
    that is made longer begins its mean anew at the new start.
    """

    def __init__(self, *, start_ratio: Rate, every_n_steps: Count):
        super().__init__()
        self.start_ratio = start_ratio
        self.every_n_steps = every_n_steps
        self.first_step = 0

    def plan(self, num_steps: int) -> None:
        self.first_step = round(self.start_ratio * num_steps) or self.every_n_steps
        if self.first_step > num_steps:
            raise ConfigError(
                f"callbacks.swa.every_n_steps {self.every_n_steps} is longer than the run of {num_steps} optimizer "
                "steps, so nothing would be averaged; make it smaller"
            )

    def is_due(self, step: int) -> bool:
        return step >= self.first_step and (step - self.first_step) % self.every_n_steps == 0

    def can_continue(self, step: int, state: dict[str, Any]) -> bool:
        return step >= self.first_step == state.get("first_step")

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "first_step": self.first_step}

    def share(self, step: int) -> float:
        return 1.0 if step == self.first_step else 1 / (self.count + 1)
