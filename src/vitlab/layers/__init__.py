"""The parts of a Vision Transformer, one idea per file."""

from vitlab.layers.attention import PRODUCTS, Attention, NoPosition, auto_attention, fused_attention
from vitlab.layers.attention_positions import ATTENTION_POSITIONS
from vitlab.layers.block import Block, PositionedBlock
from vitlab.layers.convolutional_stem import ConvolutionalStem
from vitlab.layers.cross_attention import CrossAttention
from vitlab.layers.drop_path import DROP_PATH_SHAPES, DropPath
from vitlab.layers.exports import find_exported_options
from vitlab.layers.key_value_cache import CachedMemory, KVCache, Memory, NoCache
from vitlab.layers.layer_scale import LayerScale
from vitlab.layers.masking import hidden_patches, num_hidden, put_patches, random_keep, take_patches
from vitlab.layers.mixed_grids import Grids, MixedGrids, make_mixed_grids, mask_padding, present_patches
from vitlab.layers.mlp import ACTIVATIONS, MLP, MLPS, ClippedGELU, QuickGELU, SwiGLU, mlp_width
from vitlab.layers.norm import NORMS
from vitlab.layers.patch_embedding import PatchEmbedding, compute_grid
from vitlab.layers.patches import Grid, patchify, places, unpatchify
from vitlab.layers.pooling import POOLS, AttentionPooling, ClassTokenPooling, MeanPooling, Pooling
from vitlab.layers.position_embedding import (
    POSITIONS,
    Learned1D,
    Learned2D,
    Position,
    SinCos1D,
    SinCos2D,
    resample,
    sines,
)
from vitlab.layers.relative_position import RelativePosition, offsets
from vitlab.layers.rotary_position import CenteredRotaryPosition, RegisterRotaryPosition, RotaryPosition
from vitlab.layers.sequence_attention import CausalAttention, MemoryAttention, SequenceAttention
from vitlab.layers.sequence_block import DecoderBlock, EncoderBlock, PreNormDecoderBlock, PreNormEncoderBlock
from vitlab.layers.sequence_position import SEQUENCE_POSITIONS, SEQUENCE_ROTARIES, LearnedSequencePosition, NoRotary
from vitlab.layers.token_embedding import TokenEmbedding
from vitlab.layers.written_attention import attention_weights, causal_mask, padding_mask, written_attention

__all__ = [
    "ACTIVATIONS",
    "ATTENTION_POSITIONS",
    "DROP_PATH_SHAPES",
    "MLP",
    "MLPS",
    "NORMS",
    "POOLS",
    "POSITIONS",
    "PRODUCTS",
    "SEQUENCE_POSITIONS",
    "SEQUENCE_ROTARIES",
    "Attention",
    "AttentionPooling",
    "Block",
    "CachedMemory",
    "CausalAttention",
    "CenteredRotaryPosition",
    "ClassTokenPooling",
    "ClippedGELU",
    "ConvolutionalStem",
    "CrossAttention",
    "DecoderBlock",
    "DropPath",
    "EncoderBlock",
    "Grid",
    "Grids",
    "KVCache",
    "LayerScale",
    "Learned1D",
    "Learned2D",
    "LearnedSequencePosition",
    "MeanPooling",
    "Memory",
    "MemoryAttention",
    "MixedGrids",
    "NoCache",
    "NoPosition",
    "NoRotary",
    "PatchEmbedding",
    "Pooling",
    "Position",
    "PositionedBlock",
    "PreNormDecoderBlock",
    "PreNormEncoderBlock",
    "QuickGELU",
    "RegisterRotaryPosition",
    "RelativePosition",
    "RotaryPosition",
    "SequenceAttention",
    "SinCos1D",
    "SinCos2D",
    "SwiGLU",
    "TokenEmbedding",
    "attention_weights",
    "auto_attention",
    "causal_mask",
    "compute_grid",
    "find_exported_options",
    "fused_attention",
    "hidden_patches",
    "make_mixed_grids",
    "mask_padding",
    "mlp_width",
    "num_hidden",
    "offsets",
    "padding_mask",
    "patchify",
    "places",
    "present_patches",
    "put_patches",
    "random_keep",
    "resample",
    "sines",
    "take_patches",
    "unpatchify",
    "written_attention",
]
