"""The parts of a Vision Transformer, one idea per file."""

from vitlab.layers.attention import Attention
from vitlab.layers.block import Block
from vitlab.layers.drop_path import DropPath
from vitlab.layers.mlp import MLP
from vitlab.layers.patch_embedding import PatchEmbedding
from vitlab.layers.patches import patchify, unpatchify
from vitlab.layers.pooling import ClassTokenPooling, MeanPooling

__all__ = [
    "MLP",
    "Attention",
    "Block",
    "ClassTokenPooling",
    "DropPath",
    "MeanPooling",
    "PatchEmbedding",
    "patchify",
    "unpatchify",
]
