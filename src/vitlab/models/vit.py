"""The Vision Transformer (Dosovitskiy et al., 2021, arXiv:2010.11929).

B batch, C channels, H W image height and width, P patch_size, h w grid, N patches (h·w), T tokens (prefix and patches),
D embed_dim, K num_classes
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.layers import (
    ATTENTION_POSITIONS,
    DROP_PATH_SHAPES,
    MLPS,
    NORMS,
    POOLS,
    POSITIONS,
    Attention,
    Grids,
    LayerScale,
    Position,
    mlp_width,
    present_patches,
    without_fill,
)
from vitlab.models.assembly import build_blocks, build_pool, build_stem
from vitlab.models.initialization import POSITION_STD, SCHEMES, initialize
from vitlab.models.options import one_of
from vitlab.ranges import Count, Depth, Deviation, Natural, Pixels, Positive, Rate, Real, Unsigned, Width

PLACES = ("stem", "every_layer", "every_layer_shared")


class VisionTransformer(nn.Module):
    """Patches and a class token through `depth` encoder blocks, and a linear head on the pooled result (figure 1).

    Module and parameter names are timm's, so that its state dicts load as they are. conf/model/_vit.yaml says beside
    each option what it chooses; each choice is a layer of its own. `image_size` is one number of pixels, or height and
    width. Raises ValueError for sizes that do not fit together, and for an option that there is none of.
    """

    cls_token: Tensor
    reg_token: Tensor
    pos_embed: Tensor
    prefixes: tuple[str, ...] = ("cls_token", "reg_token")  # what stands before the patches

    def __init__(
        self,
        *,
        image_size: Pixels | Sequence[Pixels],
        patch_size: Pixels | None,
        stem_channels: Sequence[Width] | None,
        in_chans: Count,
        num_classes: Count,
        embed_dim: Width,
        depth: Depth,
        num_heads: Count,
        mlp: str,
        mlp_ratio: Positive | None,
        mlp_dim: Width | None,
        norm: str,
        norm_eps: Unsigned,
        attention: str,
        qkv_bias: bool,
        qk_norm: bool,
        layer_scale: Unsigned | None,
        position: str,
        position_place: str,
        embed_prefix: bool,
        class_token: bool,
        num_registers: Natural,
        pre_norm: bool,
        pool: str,
        fc_norm: bool | None,
        representation_dim: Width | None,
        initialization: str,
        head_std: Deviation | None,
        head_bias: Real,
        drop_rate: Rate,
        attn_drop_rate: Rate,
        drop_path_rate: Rate,
        drop_path_shape: str,
    ):
        super().__init__()
        one_of("mlp", mlp, MLPS)
        one_of("norm", norm, NORMS)
        one_of("position", position, POSITIONS)
        one_of("position_place", position_place, PLACES)
        one_of("pool", pool, POOLS)
        one_of("initialization", initialization, SCHEMES)
        one_of("drop_path_shape", drop_path_shape, DROP_PATH_SHAPES)
        if POOLS[pool].needs_class_token and not class_token:
            others = " or ".join(f"'{name}'" for name, kind in POOLS.items() if not kind.needs_class_token)
            raise ValueError(f"pool '{pool}' needs class_token=true; without a class token use pool {others}")
        self.depth, self.scheme, self.head_std, self.head_bias = depth, initialization, head_std, head_bias
        heads: dict[str, Any] = {"embed_dim": embed_dim, "num_heads": num_heads}
        make_norm = partial(NORMS[norm], embed_dim, eps=norm_eps)
        mlp_dim = mlp_width(embed_dim, mlp_ratio, mlp_dim)
        make_mlp = partial(MLPS[mlp], embed_dim=embed_dim, mlp_dim=mlp_dim, drop_rate=drop_rate)

        stem = {"image_size": image_size, "in_chans": in_chans, "embed_dim": embed_dim}
        self.patch_embed = build_stem(patch_size, stem_channels, **stem)
        prefix = self.add_prefix({"cls_token": int(class_token), "reg_token": num_registers}, embed_dim)
        tokens: dict[str, Any] = {"grid": self.patch_embed.grid, "num_prefix_tokens": prefix}
        self.add_position(POSITIONS[position](embed_dim=embed_dim, embed_prefix=embed_prefix, **tokens))
        if position_place != "stem" and not self.position.learned:
            raise ValueError(f"position_place '{position_place}' is for learned positions, which '{position}' is not")
        self.pos_drop = nn.Dropout(drop_rate)
        self.norm_pre = make_norm() if pre_norm else nn.Identity()

        in_attention = ATTENTION_POSITIONS.get(position)
        make_attention = partial(
            Attention,
            **heads,
            qkv_bias=qkv_bias,
            qk_norm=partial(NORMS[norm], eps=norm_eps) if qk_norm else None,
            product=attention,
            drop_rate=drop_rate,
            attn_drop_rate=attn_drop_rate,
        )
        self.blocks = build_blocks(
            [drop_path_rate * DROP_PATH_SHAPES[drop_path_shape](layer, depth) for layer in range(depth)],
            self.position if position_place != "stem" else None,
            self.pos_embed if position_place == "every_layer_shared" else None,
            attention=lambda: make_attention(position=in_attention(**heads, **tokens) if in_attention else None),
            mlp=make_mlp,
            norm=make_norm,
            layer_scale=nn.Identity if layer_scale is None else partial(LayerScale, embed_dim, layer_scale),
        )
        self.tells_blocks = in_attention is not None or position_place != "stem"
        self.norm, self.attn_pool, self.fc_norm = build_pool(  # timm's names
            POOLS[pool], fc_norm, num_prefix_tokens=prefix, mlp=make_mlp, norm=make_norm, **heads
        )
        self.add_head(embed_dim, representation_dim, num_classes)
        self.initialize()

    def add_prefix(self, counts: dict[str, int], embed_dim: int) -> int:
        """Add the learned tokens before the patches, and count them; a kind without any is not in the state dict."""
        for name in self.prefixes:
            if counts[name]:
                setattr(self, name, nn.Parameter(torch.empty(1, counts[name], embed_dim)))
            else:
                self.register_buffer(name, torch.empty(1, 0, embed_dim), persistent=False)
        self.num_prefix_tokens = sum(counts.values())
        return self.num_prefix_tokens

    def add_position(self, position: Position) -> None:
        """Add the layout of positions, and their table: learned, fixed (kept in the state dict to resample from), or
        none."""
        self.position = position
        if position.learned:
            self.pos_embed = nn.Parameter(torch.empty(position.shape))
        else:
            table = position.initial()
            self.register_buffer("pos_embed", table, persistent=table.numel() > 0)

    def add_head(self, embed_dim: int, representation_dim: int | None, num_classes: int) -> None:
        """Add the head, after a tanh layer where the model has one (section 3.1: in pre-training)."""
        self.pre_logits: nn.Module = nn.Identity()
        if representation_dim is not None:
            layers = {"fc": nn.Linear(embed_dim, representation_dim), "act": nn.Tanh()}
            self.pre_logits = nn.Sequential(OrderedDict(layers))
        self.head = nn.Linear(representation_dim or embed_dim, num_classes)

    def heads(self) -> list[nn.Linear]:
        return [self.head]

    def initialize(self) -> None:
        """Draw random weights; every parameter is overwritten."""
        self.apply(partial(initialize, scheme=self.scheme))
        if self.position.learned:
            nn.init.normal_(self.pos_embed, std=POSITION_STD[self.scheme])
        for name in self.prefixes:
            nn.init.normal_(getattr(self, name), std=1e-6)
        for head in self.heads():
            self.initialize_head(head)

    def initialize_head(self, head: nn.Linear) -> None:
        initialize(head, self.scheme)  # also anew, on a backbone that is not
        if self.head_std is not None:
            nn.init.normal_(head.weight, std=self.head_std)
        nn.init.constant_(head.bias, self.head_bias)

    def embed(self, x: Tensor, grid: Grids | None = None) -> tuple[Tensor, Grids]:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> tokens (B, T, D), prefix first, and their grid."""
        x, grid = self.patch_embed(x, grid)  # (B, N, D)
        x = torch.cat([self.prefix().expand(x.shape[0], -1, -1), x], dim=1)  # (B, T, D)
        return self.norm_pre(self.pos_drop(x + self.position(self.pos_embed, grid))), grid  # equation 1

    def prefix(self) -> Tensor:
        return torch.cat([getattr(self, name) for name in self.prefixes], dim=1)  # (1, prefix, D)

    def encode(self, x: Tensor, grid: Grids | None = None, attn_mask: Tensor | None = None) -> Tensor:
        """Send tokens (B, T, D) through the blocks and the last norm."""
        for block in self.blocks:
            x = block(x, grid, attn_mask)  # equations 2 and 3
        return self.norm(x)

    def forward_features(self, x: Tensor, grid: Grids | None = None, attn_mask: Tensor | None = None) -> Tensor:
        """-> (B, T, D). Inputs of another size than the model was made for come with their `grid` (h, w), patches of
        images that differ with their mixed grids. `attn_mask`, broadcast to (B, heads, T, T), as in `Attention`."""
        x, grid = self.embed(x, grid)
        return self.encode(x, grid, without_fill(attn_mask, grid, self.num_prefix_tokens))

    def represent(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> what the head sees of them (B, D), or representation_dim."""
        return self.pooled(self.forward_features(x, grid), grid)

    def pooled(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Tokens (B, T, D) -> (B, D), or representation_dim."""
        x = self.attn_pool(x, present_patches(grid))  # (B, D), equation 4
        return self.pre_logits(self.fc_norm(x))

    def classified(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Tokens (B, T, D) -> logits (B, K)."""
        return self.head(self.pooled(x, grid))  # (B, K)

    def forward(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> logits (B, K)."""
        return self.classified(self.forward_features(x, grid), grid)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: biases, norms, tokens and position embeddings."""
        exempt = {*self.prefixes, "pos_embed", "latent", "relative_position_bias_table"}
        return {name for name, p in self.named_parameters() if p.ndim == 1 or name.split(".")[-1] in exempt}

    def layer_of(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the embeddings, 1 to depth the blocks, depth+1 what follows them."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith(("patch_embed.", *self.prefixes, "pos_embed", "norm_pre.")) else self.depth + 1
