"""The axes of a search space, one for each key that varies."""

import math
import random
from dataclasses import dataclass

from vitlab.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The values that a key may take: one of `choices`, or a number from `low` to `high`.

    `whole` restricts it to integers, `log` draws it on a logarithmic scale.
    """

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
            raise ConfigError(f"{self.name}: the interval from {self.low} to {self.high} is not finite")
        ends = f"from {float(self.low):.15g} to {float(self.high):.15g}"
        if self.low >= self.high:
            raise ConfigError(f"{self.name}: {ends} is not an interval; give the smaller number first")
        if self.log and self.low <= 0:
            raise ConfigError(f"{self.name}: a logarithmic interval must begin above 0, not at {self.low:g}")
        if self.whole and (self.low % 1 or self.high % 1):
            raise ConfigError(
                f"{self.name} is an integer in the config, but the interval {ends} has fractional ends; "
                "write tag(float, interval(...)) to draw fractions"
            )

    @property
    def first(self) -> float | str:
        return self.choices[0] if self.choices is not None else int(self.low) if self.whole else self.low

    def override(self, value: float | str) -> str:
        """Format the override that sets the key to a value."""
        return f"{self.name}={value}"

    def draw(self, rng: random.Random) -> float | str:
        """Draw a value uniformly, or log-uniformly on a logarithmic scale."""
        if self.choices is not None:
            return rng.choice(self.choices)
        low, high = (self.low, self.high + 1) if self.whole else (self.low, self.high)
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        return min(int(value), int(self.high)) if self.whole else value
