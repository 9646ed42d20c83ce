"""The Vision Transformer (Dosovitskiy et al., 2021, arXiv:2010.11929).

B batch, C channels, H W image height and width, P patch_size, N patches, D embed_dim
"""

import torch
from torch import Tensor, nn

from vitlab.layers import Block, ClassTokenPooling, MeanPooling, PatchEmbedding
from vitlab.models.initialization import initialize


class VisionTransformer(nn.Module):
    """Patches and a class token through `depth` encoder blocks, and a linear head on the pooled result (figure 1).

    Module and parameter names are timm's, so that its state dicts load as they are. `pool` is "cls" or "mean"; mean
    pooling takes its norm after pooling (`fc_norm`). `drop_path_rate` grows linearly from 0 at the first block to
    the given value at the last. Raises ValueError for sizes that do not fit together.
    """

    cls_token: Tensor

    def __init__(
        self,
        *,
        image_size: int,
        patch_size: int,
        in_chans: int,
        num_classes: int,
        embed_dim: int,
        depth: int,
        num_heads: int,
        mlp_ratio: float,
        qkv_bias: bool,
        class_token: bool,
        pool: str,
        drop_rate: float,
        attn_drop_rate: float,
        drop_path_rate: float,
    ):
        super().__init__()
        if pool not in ("cls", "mean"):
            raise ValueError(f"pool '{pool}' is not one of: cls, mean")
        if pool == "cls" and not class_token:
            raise ValueError("pool 'cls' needs class_token=true; without a class token use pool 'mean'")
        if depth < 1:
            raise ValueError(f"depth {depth} is not at least 1")
        self.depth = depth
        self.patch_embed = PatchEmbedding(
            image_size=image_size, patch_size=patch_size, in_chans=in_chans, embed_dim=embed_dim
        )
        self.num_prefix_tokens = int(class_token)
        if class_token:
            self.cls_token = nn.Parameter(torch.empty(1, 1, embed_dim))
        else:  # no token to put in front, and nothing in the state dict
            self.register_buffer("cls_token", torch.empty(1, 0, embed_dim), persistent=False)
        self.pos_embed = nn.Parameter(torch.empty(1, self.num_prefix_tokens + self.patch_embed.num_patches, embed_dim))
        self.pos_drop = nn.Dropout(drop_rate)
        self.blocks = nn.ModuleList(
            Block(
                embed_dim=embed_dim,
                num_heads=num_heads,
                mlp_dim=int(embed_dim * mlp_ratio),
                qkv_bias=qkv_bias,
                drop_rate=drop_rate,
                attn_drop_rate=attn_drop_rate,
                drop_path_rate=drop_path_rate * layer / max(depth - 1, 1),
            )
            for layer in range(depth)
        )
        norm = nn.LayerNorm(embed_dim, eps=1e-6)
        self.norm = norm if pool == "cls" else nn.Identity()
        self.pool = ClassTokenPooling() if pool == "cls" else MeanPooling(self.num_prefix_tokens)
        self.fc_norm = norm if pool == "mean" else nn.Identity()
        self.head = nn.Linear(embed_dim, num_classes)
        self.initialize()

    def initialize(self) -> None:
        """Start from random weights; every parameter is overwritten."""
        self.apply(initialize)
        nn.init.normal_(self.pos_embed, std=0.02)
        nn.init.normal_(self.cls_token, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> logits (B, num_classes)."""
        x = self.patch_embed(x)  # (B, N, D)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)  # (B, 1+N, D)
        x = self.pos_drop(x + self.pos_embed)  # equation 1
        for block in self.blocks:
            x = block(x)  # equations 2 and 3
        x = self.pool(self.norm(x))  # (B, D), equation 4
        return self.head(self.fc_norm(x))  # (B, num_classes)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: biases, norms, class token and position embedding."""
        tokens = {"cls_token", "pos_embed"}
        return {name for name, p in self.named_parameters() if p.ndim == 1 or name in tokens}

    def layer_of(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the embeddings, 1 to depth the blocks, depth+1 what follows them."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith(("patch_embed.", "cls_token", "pos_embed")) else self.depth + 1
