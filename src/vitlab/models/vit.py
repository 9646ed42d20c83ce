"""The Vision Transformer (Dosovitskiy et al., 2021, arXiv:2010.11929).

B batch, C channels, H W image height and width, P patch_size, h w grid, N patches (h·w), T tokens (prefix and patches),
D embed_dim, K num_classes
"""

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn

from vitlab.layers import ATTENTION_POSITIONS, Grids, Position, mask_padding, present_patches
from vitlab.models.assembly import build_blocks, build_pool, build_position, build_stem
from vitlab.models.initialization import POSITION_STD, initialize
from vitlab.models.options import VisionTransformerOptions, accept_options


class VisionTransformer(nn.Module):
    """Patches and a class token through `depth` encoder blocks, and a linear head on the pooled result (figure 1).

    Module and parameter names are timm's, so that its state dicts load as they are. conf/model/_vit.yaml says beside
    each option what it chooses; each choice is a layer of its own. Raises ValueError for sizes that do not
    fit together, and for an unknown option.
    """

    cls_token: Tensor
    reg_token: Tensor
    pos_embed: Tensor
    prefixes: tuple[str, ...] = ("cls_token", "reg_token")  # what stands before the patches

    @accept_options(VisionTransformerOptions)
    def __init__(self, options: VisionTransformerOptions):
        super().__init__()
        self.depth, self.scheme = options.depth, options.initialization
        self.head_std, self.head_bias = options.head_std, options.head_bias

        self.patch_embed = build_stem(options)
        self.add_prefix(options)
        self.add_position(build_position(options, self.patch_embed.grid, self.num_prefix_tokens))
        self.pos_drop = nn.Dropout(options.drop_rate)
        self.norm_pre = options.build_norm() if options.pre_norm else nn.Identity()

        self.blocks = build_blocks(options, self.position, self.pos_embed)
        self.positions_in_blocks = options.position in ATTENTION_POSITIONS or options.position_place != "stem"
        self.norm, self.attn_pool, self.fc_norm = build_pool(options, self.num_prefix_tokens)  # timm's names
        self.add_head(options)
        self.initialize()

    def add_prefix(self, options: VisionTransformerOptions) -> None:
        """Add the learned tokens before the patches; a kind without any is not in the state dict."""
        counts = self.count_prefix(options)
        for name in self.prefixes:
            if counts[name]:
                setattr(self, name, nn.Parameter(torch.empty(1, counts[name], options.embed_dim)))
            else:
                self.register_buffer(name, torch.empty(1, 0, options.embed_dim), persistent=False)
        self.num_prefix_tokens = sum(counts.values())

    def count_prefix(self, options: VisionTransformerOptions) -> dict[str, int]:
        return {"cls_token": int(options.class_token), "reg_token": options.num_registers}

    def add_position(self, position: Position) -> None:
        """Add the layout of positions, and their table: learned, fixed (kept in the state dict to resample from), or
        none."""
        self.position = position
        if position.learned:
            self.pos_embed = nn.Parameter(torch.empty(position.shape))
        else:
            table = position.initial()
            self.register_buffer("pos_embed", table, persistent=table.numel() > 0)

    def add_head(self, options: VisionTransformerOptions) -> None:
        """Add the head, after a tanh layer where the model has one (section 3.1: in pre-training)."""
        width = options.representation_dim or options.embed_dim
        self.pre_logits: nn.Module = nn.Identity()
        if options.representation_dim is not None:
            layers = {"fc": nn.Linear(options.embed_dim, width), "act": nn.Tanh()}
            self.pre_logits = nn.Sequential(OrderedDict(layers))
        self.head = nn.Linear(width, options.num_classes)

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
        return self.encode(x, grid, mask_padding(attn_mask, grid, self.num_prefix_tokens))

    def represent(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> what the head sees of them (B, D), or representation_dim."""
        return self.pool_tokens(self.forward_features(x, grid), grid)

    def pool_tokens(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Tokens (B, T, D) -> (B, D), or representation_dim."""
        x = self.attn_pool(x, present_patches(grid))  # (B, D), equation 4
        return self.pre_logits(self.fc_norm(x))

    def classify_tokens(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Tokens (B, T, D) -> logits (B, K)."""
        return self.head(self.pool_tokens(x, grid))  # (B, K)

    def forward(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> logits (B, K)."""
        return self.classify_tokens(self.forward_features(x, grid), grid)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: biases, norms, tokens and position embeddings."""
        exempt = {*self.prefixes, "pos_embed", "latent", "relative_position_bias_table"}
        return {name for name, p in self.named_parameters() if p.ndim == 1 or name.split(".")[-1] in exempt}

    def get_layer_id(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the embeddings, 1 to depth the blocks, depth+1 what follows them."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith(("patch_embed.", *self.prefixes, "pos_embed", "norm_pre.")) else self.depth + 1
