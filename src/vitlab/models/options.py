"""Declare the options of models, each once: its type and its range. conf/model/ says beside each value what it chooses.

A model is built from flat keywords, VisionTransformer(embed_dim=192, …); its constructor gets them as one object, which
it hands on to what builds the parts.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import Concatenate, ParamSpec, TypeVar

from torch import nn

from vitlab.layers import DROP_PATH_SHAPES, MLPS, NORMS, POOLS, POSITIONS, PRODUCTS, mlp_width
from vitlab.models.initialization import SCHEMES
from vitlab.ranges import Count, Depth, Deviation, Natural, Pixels, Positive, Rate, Real, Unsigned, Width

POSITION_PLACES = ("stem", "every_layer", "every_layer_shared")

P = ParamSpec("P")
Model = TypeVar("Model")
Given = TypeVar("Given")


def accept_options(
    options: Callable[P, Given],
) -> Callable[[Callable[[Model, Given], None]], Callable[Concatenate[Model, P], None]]:
    """Let a constructor that is written for one object of options take the fields of that object as its keywords.

    They are its signature and its annotations, too: mypy, `help` and the checks of a config see flat keywords.
    """

    def decorate(construct: Callable[[Model, Given], None]) -> Callable[Concatenate[Model, P], None]:
        @functools.wraps(construct)
        def construct_flat(self: Model, /, *args: P.args, **keywords: P.kwargs) -> None:
            construct(self, options(*args, **keywords))

        model, *_ = inspect.signature(construct).parameters.values()
        parameters = inspect.signature(options).parameters
        construct_flat.__signature__ = inspect.Signature([model, *parameters.values()])  # type: ignore[attr-defined]  # of functions
        construct_flat.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        return construct_flat

    return decorate


def make_choice(names: Collection[str]) -> dict[str, Collection[str]]:
    """Make the metadata of a field that is one of these names."""
    return {"names": names}


def check_name(key: str, value: str, names: Collection[str]) -> None:
    """Raise ValueError, naming the key and what it can be, for an unknown name."""
    if value not in names:
        raise ValueError(f"{key} '{value}' is not one of: {', '.join(names)}")


@dataclass(frozen=True, kw_only=True)
class TransformerOptions:
    """What every Transformer is given, of images or of texts. Raises ValueError for an unknown name."""

    embed_dim: Width
    depth: Depth
    num_heads: Count
    mlp: str = field(metadata=make_choice(MLPS))
    mlp_ratio: Positive | None
    mlp_dim: Width | None
    norm: str = field(metadata=make_choice(NORMS))
    norm_eps: Unsigned
    initialization: str = field(metadata=make_choice(SCHEMES))
    drop_rate: Rate
    attn_drop_rate: Rate

    def __post_init__(self) -> None:
        for option in fields(self):
            if "names" in option.metadata:
                check_name(option.name, getattr(self, option.name), option.metadata["names"])

    def build_norm(self) -> nn.Module:
        return NORMS[self.norm](self.embed_dim, eps=self.norm_eps)

    def build_mlp(self) -> nn.Module:
        mlp_dim = mlp_width(self.embed_dim, self.mlp_ratio, self.mlp_dim)
        return MLPS[self.mlp](embed_dim=self.embed_dim, mlp_dim=mlp_dim, drop_rate=self.drop_rate)


@dataclass(frozen=True, kw_only=True)
class VisionTransformerOptions(TransformerOptions):
    """The options of a Vision Transformer. Raises ValueError for an unknown name, and for options that exclude each
    other."""

    image_size: Pixels | Sequence[Pixels]  # of a square, or height and width
    patch_size: Pixels | None
    stem_channels: Sequence[Width] | None
    in_chans: Count

    position: str = field(metadata=make_choice(POSITIONS))
    position_place: str = field(metadata=make_choice(POSITION_PLACES))
    embed_prefix: bool
    class_token: bool
    num_registers: Natural
    pre_norm: bool

    attention: str = field(metadata=make_choice(PRODUCTS))
    qkv_bias: bool
    qk_norm: bool
    layer_scale: Unsigned | None
    drop_path_rate: Rate
    drop_path_shape: str = field(metadata=make_choice(DROP_PATH_SHAPES))

    pool: str = field(metadata=make_choice(POOLS))
    fc_norm: bool | None

    num_classes: Count
    representation_dim: Width | None
    head_std: Deviation | None
    head_bias: Real

    def __post_init__(self) -> None:
        super().__post_init__()
        if POOLS[self.pool].needs_class_token and not self.class_token:
            others = " or ".join(f"'{name}'" for name, kind in POOLS.items() if not kind.needs_class_token)
            raise ValueError(f"pool '{self.pool}' needs class_token=true; without a class token use pool {others}")
        if self.position_place != "stem" and not POSITIONS[self.position].learned:
            raise ValueError(
                f"position_place '{self.position_place}' needs learned positions, but position is '{self.position}'; "
                "use position_place=stem"
            )
        if (self.patch_size is None) == (self.stem_channels is None):
            raise ValueError("exactly one of patch_size and stem_channels must be given; set the other to null")
