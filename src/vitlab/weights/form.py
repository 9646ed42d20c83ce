"""Describe a source of weights once it is read, and the library that wrote it.

h w grid of patches
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vitlab.layers import Grid
from vitlab.weights.renaming import Tensors, interleave
from vitlab.weights.resize import TIMM, Interpolation


@dataclass(frozen=True)
class Form:
    """How a library writes a Vision Transformer.

    `recognises` tells by the names of tensors; `rename` brings them to our names; `interpolation` is how that library
    resizes a position table; `extras` is a regular expression of names (ours) that nobody misses in an encoder;
    `facts` are what all its models have in common, by the keys of the model's config; `read_facts` takes the facts that
    the names and shapes of tensors show. The fact `pool` is how the head reads tokens: one of `POOLS`, or in words
    what ours have no option for.
    """

    name: str
    recognises: Callable[[set[str]], bool]
    rename: Callable[[Tensors], Tensors]
    interpolation: Interpolation = TIMM
    extras: str = r"(?!)"
    facts: dict[str, Any] = field(default_factory=dict)
    read_facts: Callable[[Tensors], dict[str, Any]] = lambda tensors: {}


@dataclass(frozen=True)
class StatedFacts:
    """What a config.json, or a model of another library, says beside the tensors. `halves`: rotary positions turn the
    pairs (x[i], x[i+d/2]) of a head of width d; ours are (x[2i], x[2i+1]). The rest is as in `LoadedWeights`."""

    facts: dict[str, Any]
    grid: Grid | None = None
    halves: bool = False
    interpolation: Interpolation | None = None


@dataclass(frozen=True)
class LoadedWeights:
    """Tensors in our names, from `origin`. `facts` are what tensors do not say, by the keys of the model's config, as
    far as the source states them; `grid` is that of its positions, `pool` how its head reads the tokens, as in `Form`,
    None where it does not say; `vocabularies` are what it writes and reads in, as a run keeps them."""

    origin: str
    form: str
    tensors: Tensors
    facts: dict[str, Any] = field(default_factory=dict)
    grid: Grid | None = None
    interpolation: Interpolation = TIMM
    extras: str = r"(?!)"
    pool: str | None = None
    vocabularies: dict[str, Any] = field(default_factory=dict)


def describe_source(origin: str, form: Form, tensors: Tensors, stated: StatedFacts) -> LoadedWeights:
    """Make a source of a library's tensors and of what it says of them, in our words."""
    shown = form.read_facts(tensors)
    tensors = form.rename(tensors)
    if stated.halves:
        tensors = interleave(tensors, stated.facts["num_heads"])
    facts, interpolation = form.facts | shown | stated.facts, stated.interpolation or form.interpolation
    pool = facts.pop("pool", None)
    return LoadedWeights(origin, form.name, tensors, facts, stated.grid, interpolation, form.extras, pool)
