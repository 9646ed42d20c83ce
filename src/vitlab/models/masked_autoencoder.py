"""The masked autoencoder (He et al., 2022, arXiv:2111.06377): a ViT that sees a part of an image, a small one that
predicts the rest.

B batch, C channels, H W image height and width, P patch_size, h w grid, N patches (h·w), K patches that are seen,
S prefix tokens, D embed_dim, E decoder_dim
"""

from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from vitlab.layers import (
    MLPS,
    Attention,
    Block,
    ConvolutionalStem,
    Grid,
    Grids,
    MixedGrids,
    PatchEmbedding,
    SinCos2D,
    places,
    put_patches,
    take_patches,
)
from vitlab.models.initialization import initialize
from vitlab.models.vit import VisionTransformer
from vitlab.ranges import Count, Depth, Pixels, Width

NORM_EPS = 1e-6


class MaskedAutoencoder(nn.Module):
    """`encoder` sees the patches that are kept; a decoder of plain blocks sees them and a learned token for each of the
    others, all with fixed positions, and predicts the pixels of every patch (figure 1, section 3).

    The encoder is a VisionTransformer, whose head is taken off. Names of the decoder's parameters are those of the
    authors' code. `patch_size` is the encoder's own. Raises ValueError for an encoder that would see what is hidden, or
    has other weights than its head's that nothing here trains, and for sizes that do not fit together.
    """

    decoder_pos_embed: Tensor

    def __init__(
        self,
        *,
        encoder: nn.Module,
        patch_size: Pixels | None,
        decoder_dim: Width,
        decoder_depth: Depth,
        decoder_heads: Count,
    ):
        super().__init__()
        if decoder_dim % 4 or decoder_dim % decoder_heads:
            raise ValueError(f"decoder_dim {decoder_dim} is not a multiple of 4 and of decoder_heads {decoder_heads}")
        self.encoder = check_encoder(encoder, patch_size)
        self.encoder.head = nn.Identity()  # type: ignore[assignment]  # it would get no gradient
        self.depth = self.encoder.depth
        kernel = cast(PatchEmbedding, self.encoder.patch_embed).proj.weight  # (D, C, P, P)
        self.in_chans = kernel.shape[1]

        self.decoder_embed = nn.Linear(kernel.shape[0], decoder_dim)
        self.mask_token = nn.Parameter(torch.empty(1, 1, decoder_dim))
        self.decoder_position = SinCos2D(
            embed_dim=decoder_dim,
            grid=self.encoder.patch_embed.grid,
            num_prefix_tokens=self.encoder.num_prefix_tokens,
            embed_prefix=True,
        )
        self.register_buffer("decoder_pos_embed", self.decoder_position.initial())
        self.decoder_blocks = nn.ModuleList(
            Block(
                attention=Attention(embed_dim=decoder_dim, num_heads=decoder_heads, qkv_bias=True),
                mlp=MLPS["gelu"](embed_dim=decoder_dim, mlp_dim=4 * decoder_dim, drop_rate=0.0),
                norm=partial(nn.LayerNorm, decoder_dim, eps=NORM_EPS),
            )
            for _ in range(decoder_depth)
        )
        self.decoder_norm = nn.LayerNorm(decoder_dim, eps=NORM_EPS)
        self.decoder_pred = nn.Linear(decoder_dim, kernel[0].numel())
        self.initialize()

    def initialize(self) -> None:
        """Random weights for the decoder, by the encoder's scheme; the encoder has its own."""
        for name, part in self.named_children():
            if name != "encoder":
                part.apply(partial(initialize, scheme=self.encoder.scheme))
        nn.init.normal_(self.mask_token, std=0.02)

    def heads(self) -> list[nn.Linear]:
        """Return no layers: there is no head."""
        return []

    def encode(self, x: Tensor, grid: Grid | None, keep: Tensor | None) -> tuple[Tensor, Grid, Tensor]:
        """Images (B, C, H, W) or patches (B, N, C·P·P), and which are kept (B, K) -> latent tokens (B, S+K, D), the
        grid and what was kept. None is kept: all are."""
        x, whole = self.encoder.embed(x, grid)  # (B, S+N, D)
        h, w = require_one_grid(whole)
        prefix, patches = x.tensor_split([self.encoder.num_prefix_tokens], dim=1)
        if keep is None:
            keep = torch.arange(h * w, device=x.device).expand(x.shape[0], -1)
        x = torch.cat([prefix, take_patches(patches, keep)], dim=1)  # (B, S+K, D)
        x = self.encoder.encode(x, select_grids(keep, (h, w)))
        return self.encoder.fc_norm(x), (h, w), keep  # the last norm, wherever pooling puts it: the other does nothing

    def decode(self, latent: Tensor, grid: Grid, keep: Tensor) -> Tensor:
        """Latent tokens (B, S+K, D) -> pixels of every patch (B, N, C·P·P)"""
        x = self.decoder_embed(latent)  # (B, S+K, E)
        S, (h, w) = self.encoder.num_prefix_tokens, grid
        masked = self.mask_token.to(x.dtype).expand(x.shape[0], h * w, -1)
        x = torch.cat([x[:, :S], put_patches(x[:, S:], keep, masked)], dim=1)  # (B, S+N, E)
        x = x + self.decoder_position(self.decoder_pos_embed, grid)
        for block in self.decoder_blocks:
            x = block(x, grid)
        return self.decoder_pred(self.decoder_norm(x[:, S:]))  # (B, N, C·P·P)

    def forward(self, x: Tensor, grid: Grid | None = None, keep: Tensor | None = None) -> Tensor:
        """Images (B, C, H, W) or patches (B, N, C·P·P), and the places of those that are seen (B, K), in any order
        -> the pixels of every patch (B, N, C·P·P)"""
        return self.decode(*self.encode(x, grid, keep))

    def represent(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Encode whole images (B, C, H, W), or patches (B, N, C·P·P). -> (B, D)"""
        return self.encoder.represent(x, grid)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: the encoder's, and biases, norms and the mask token."""
        own = {name for name, p in self.named_parameters() if p.ndim == 1 or name == "mask_token"}
        return own | {f"encoder.{name}" for name in self.encoder.no_weight_decay()}

    def outputs(self) -> set[str]:
        """Names of the parameters that predict, as a head does."""
        return {"decoder_pred.weight", "decoder_pred.bias"}

    def get_layer_id(self, name: str) -> int:
        """The layer a parameter belongs to: the encoder's own, and depth+1 for all of the decoder."""
        within = name.removeprefix("encoder.")
        return self.depth + 1 if within == name else self.encoder.get_layer_id(within)


def check_encoder(encoder: nn.Module, patch_size: Pixels | None) -> VisionTransformer:
    if not isinstance(encoder, VisionTransformer):
        raise ValueError(f"encoder is a {type(encoder).__name__}; a masked autoencoder needs a Vision Transformer")
    if isinstance(encoder.patch_embed, ConvolutionalStem):
        raise ValueError(
            "encoder.stem_channels: a convolutional stem sees pixels of hidden patches; set encoder.patch_size instead"
        )
    if patch_size != encoder.patch_embed.patch_size:
        raise ValueError(
            f"patch_size is {patch_size}, but the encoder's is {encoder.patch_embed.patch_size}; set only "
            "encoder.patch_size"
        )
    if len(encoder.heads()) > 1:
        raise ValueError(f"encoder is a {type(encoder).__name__}, which has more than one head; choose a plain ViT")
    if any(True for _ in encoder.attn_pool.parameters()):
        raise ValueError("encoder.pool 'map' has weights that this task does not train; use cls or mean")
    if not isinstance(encoder.pre_logits, nn.Identity):
        raise ValueError("encoder.representation_dim adds a layer that this task does not train; set it to null")
    return encoder


def require_one_grid(grid: Grids) -> Grid:
    if isinstance(grid, MixedGrids):
        raise ValueError("a masked autoencoder takes images of one size in a batch")
    return grid


def select_grids(keep: Tensor, grid: Grid) -> MixedGrids:
    """Select the places of the patches that are kept, for positions that act within the blocks. (B, K)"""
    coordinates = torch.stack(places(grid, keep.device), dim=1)[keep]  # (B, K, 2)
    return MixedGrids(coordinates, torch.ones_like(keep, dtype=torch.bool), (grid,))
