"""Positions that act in attention, by their names in the config."""

from collections.abc import Callable

from vitlab.layers.attention import NoPosition
from vitlab.layers.relative_position import RelativePosition
from vitlab.layers.rotary_position import CenteredRotaryPosition, RegisterRotaryPosition, RotaryPosition

ATTENTION_POSITIONS: dict[str, Callable[..., NoPosition]] = {
    "relative": RelativePosition,
    "rotary": RotaryPosition,
    "rotary_centered": CenteredRotaryPosition,
    "learned_rotary": RotaryPosition,  # beside a learned table
    "learned_rotary_registers": RegisterRotaryPosition,
}
