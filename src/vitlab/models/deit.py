"""DeiT with its distillation token (Touvron et al., 2021, arXiv:2012.12877, section 4).

B batch, T tokens, D embed_dim, K num_classes
"""

import torch
from torch import Tensor, nn

from vitlab.layers import Grids
from vitlab.models.options import VisionTransformerOptions
from vitlab.models.vit import VisionTransformer


class DistilledVisionTransformer(VisionTransformer):
    """A second token beside the class token, with a head of its own that learns from a teacher.

    The logits are the mean of both heads', as in the authors' code (the paper's section 4 adds their probabilities);
    `compute_both_logits` gives them apart, for the loss. Raises ValueError unless pooling is by class token.
    """

    dist_token: Tensor
    prefixes: tuple[str, ...] = ("cls_token", "dist_token", "reg_token")

    def count_prefix(self, options: VisionTransformerOptions) -> dict[str, int]:
        return {**super().count_prefix(options), "dist_token": 1}

    def add_head(self, options: VisionTransformerOptions) -> None:
        if not self.attn_pool.needs_class_token:
            raise ValueError("a distillation token needs a class token; use pool 'cls'")
        if options.representation_dim is not None:
            raise ValueError("a distilled model cannot have a representation_dim; set it to null")
        super().add_head(options)
        self.head_dist = nn.Linear(options.embed_dim, options.num_classes)

    def heads(self) -> list[nn.Linear]:
        return [self.head, self.head_dist]

    def compute_both_logits(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Images or patches -> those of the class token and of the distillation token (B, 2, K)."""
        return self.apply_heads(self.forward_features(x, grid))

    def apply_heads(self, x: Tensor) -> Tensor:
        """Tokens (B, T, D) -> (B, 2, K)"""
        x = self.fc_norm(x)
        return torch.stack([self.head(x[:, 0]), self.head_dist(x[:, 1])], dim=1)

    def classify_tokens(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Tokens (B, T, D) -> logits (B, K)."""
        return self.apply_heads(x).mean(dim=1)
