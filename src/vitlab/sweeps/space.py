"""Describe what a search may choose from: an axis for each key that varies."""

import math
import random
from dataclasses import dataclass

from vitlab.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The values of a key: one of the `choices`, or a number from `low` to `high`, whole or on a logarithmic scale."""

    name: str
    choices: list[str] | None = None
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False

    def __post_init__(self) -> None:
        if self.choices is not None:
            return
        if not math.isfinite(self.high - self.low):
            raise ConfigError(f"{self.name}: an interval from {self.low} to {self.high} is not finite")
        ends = f"from {float(self.low):.15g} to {float(self.high):.15g}"
        if self.low >= self.high:
            raise ConfigError(f"{self.name}: {ends} is no interval; the second is the larger number")
        if self.log and self.low <= 0:
            raise ConfigError(f"{self.name}: a logarithmic scale begins above 0, not at {self.low:g}")
        if self.whole and (self.low % 1 or self.high % 1):
            raise ConfigError(
                f"{self.name} holds a whole number in the config, and the interval {ends} has other "
                "ends; tag(float, interval(...)) draws other numbers"
            )

    @property
    def first(self) -> float | str:
        return self.choices[0] if self.choices is not None else int(self.low) if self.whole else self.low

    def word(self, value: float | str) -> str:
        """Write the override that sets a value of it."""
        return f"{self.name}={value}"

    def drawn(self, chosen: random.Random) -> float | str:
        """Draw a value, all equally likely; on a logarithmic scale, all magnitudes."""
        if self.choices is not None:
            return chosen.choice(self.choices)
        low, high = (self.low, self.high + 1) if self.whole else (self.low, self.high)
        value = math.exp(chosen.uniform(math.log(low), math.log(high))) if self.log else chosen.uniform(low, high)
        return min(int(value), int(self.high)) if self.whole else value
