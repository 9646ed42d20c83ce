"""A ViT that learns from its own views: an encoder and a projection (Caron et al., 2021, arXiv:2104.14294).

B batch, D embed_dim, E bottleneck_dim, K prototypes
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers import Grids
from vitlab.models.initialization import initialize
from vitlab.models.vit import VisionTransformer
from vitlab.ranges import Pixels, VocabSize, Width


class Projection(nn.Module):
    """Three layers to a narrow one, and how alike the result is to each of K learned directions: cosines (appendix C).

    (B, D) -> (B, K). The directions have length 1, whatever their weights' (a weight norm without a gain).
    """

    def __init__(self, *, embed_dim: int, hidden_dim: int, bottleneck_dim: int, num_prototypes: int):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, bottleneck_dim),
        )
        self.prototypes = nn.Parameter(torch.empty(num_prototypes, bottleneck_dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(self.mlp(x), dim=1), F.normalize(self.prototypes, dim=1))


class SelfDistilled(nn.Module):
    """`encoder`, a VisionTransformer whose head is taken off, and a `projection` of what the head would see. Images
    (B, C, H, W), or patches (B, N, C·P·P) and their grid -> (B, K)

    `patch_size` is the encoder's own. Raises ValueError for another encoder and sizes below 1.
    """

    def __init__(
        self,
        *,
        encoder: nn.Module,
        patch_size: Pixels | None,
        hidden_dim: Width,
        bottleneck_dim: Width,
        num_prototypes: VocabSize,
    ):
        super().__init__()
        if not isinstance(encoder, VisionTransformer) or len(encoder.heads()) != 1:
            raise ValueError(f"encoder is a {type(encoder).__name__}; choose a plain ViT")
        if patch_size != encoder.patch_embed.patch_size:
            raise ValueError(
                f"patch_size is {patch_size}, but the encoder's is {encoder.patch_embed.patch_size}; set "
                "only encoder.patch_size"
            )
        self.encoder = encoder
        self.depth = encoder.depth
        self.projection = Projection(
            embed_dim=encoder.heads()[0].in_features,
            hidden_dim=hidden_dim,
            bottleneck_dim=bottleneck_dim,
            num_prototypes=num_prototypes,
        )
        self.projection.apply(partial(initialize, scheme=encoder.scheme))
        nn.init.trunc_normal_(self.projection.prototypes, std=0.02)
        self.encoder.head = nn.Identity()  # type: ignore[assignment]  # it would get no gradient

    def heads(self) -> list[nn.Linear]:
        """Return no layers: there is no head."""
        return []

    def forward(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        return self.projection(self.represent(x, grid))

    def represent(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Encode whole images. -> (B, D)"""
        return self.encoder.represent(x, grid)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: the encoder's, and biases."""
        own = {name for name, p in self.projection.named_parameters(prefix="projection") if p.ndim == 1}
        return own | {f"encoder.{name}" for name in self.encoder.no_weight_decay()}

    def outputs(self) -> set[str]:
        """Names of the parameters that give the outputs, as a head does."""
        return {"projection.prototypes"}

    def get_layer_id(self, name: str) -> int:
        """The layer a parameter belongs to: the encoder's own, and depth+1 for the projection."""
        within = name.removeprefix("encoder.")
        return self.depth + 1 if within == name else self.encoder.get_layer_id(within)
