"""The options of a Vision Transformer, beside those that every Transformer has; conf/model/_vit.yaml says what each
chooses."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vitlab.layers import DROP_PATH_SHAPES, POOLS, POSITIONS, PRODUCTS
from vitlab.models.options import TransformerOptions, one_of
from vitlab.ranges import Count, Deviation, Natural, Pixels, Rate, Real, Unsigned, Width

POSITION_PLACES = ("stem", "every_layer", "every_layer_shared")


@dataclass(frozen=True, kw_only=True)
class VisionTransformerOptions(TransformerOptions):
    """Raises ValueError for an unknown name, and for options that exclude each other."""

    image_size: Pixels | Sequence[Pixels]  # of a square, or height and width
    patch_size: Pixels | None
    stem_channels: Sequence[Width] | None
    in_chans: Count

    position: str = field(metadata=one_of(POSITIONS))
    position_place: str = field(metadata=one_of(POSITION_PLACES))
    embed_prefix: bool
    class_token: bool
    num_registers: Natural
    pre_norm: bool

    attention: str = field(metadata=one_of(PRODUCTS))
    qkv_bias: bool
    qk_norm: bool
    layer_scale: Unsigned | None
    drop_path_rate: Rate
    drop_path_shape: str = field(metadata=one_of(DROP_PATH_SHAPES))

    pool: str = field(metadata=one_of(POOLS))
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
                f"position_place '{self.position_place}' is for learned positions, which '{self.position}' is not"
            )
        if (self.patch_size is None) == (self.stem_channels is None):
            raise ValueError("give either patch_size or stem_channels, and null for the other")
