"""Two towers, one for images and one for texts, whose features lie in one space (Radford et al., 2021,
arXiv:2103.00020, CLIP, section 2.4; Zhai et al., 2023, arXiv:2303.15343, SigLIP).

B images or texts, C channels, H W image height and width, P patch_size, N patches, M tokens of a text, D width of the
text tower, F feature_dim
"""

import math
from functools import partial
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers import Grids
from vitlab.models.initialization import initialize
from vitlab.models.options import check_name
from vitlab.models.transformer import TextEncoder
from vitlab.models.vit import VisionTransformer
from vitlab.ranges import Pixels, Range, Real, Width

Scale = Annotated[float, Range(above=0, most=100)]  # of similarities, as in CLIP

MOST = math.log(100.0)  # of logit_scale: CLIP, section 2.5
Tower = VisionTransformer | TextEncoder


class EndToken(nn.Module):
    """Take the last token of each text, its end. (B, M, D), (B,) -> (B, D)"""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return x[torch.arange(x.shape[0], device=x.device), lengths - 1]


class LastToken(nn.Module):
    """Take the last place, whatever stands there: all texts are filled up to one length. (B, M, D), (B,) -> (B, D)"""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return x[:, -1]


TEXT_POOLS = {"end": EndToken, "last": LastToken}


class ImageTextFeatures(NamedTuple):
    """Features of length 1 of images and texts, (B, F) each, and the `scale` and `bias` by which their cosines become
    logits."""

    image: Tensor
    text: Tensor
    scale: Tensor
    bias: Tensor


class ImageTextModel(nn.Module):
    """Texts (B, M), their lengths (B,), and images (B, C, H, W) or patches (B, N, C·P·P) -> `ImageTextFeatures`.

    `encoder` is a VisionTransformer, whose head is taken off, `text` a `TextEncoder`; texts are filled up to its
    max_length, and nothing is hidden of them but what a causal one hides. `text_pool` is "end", the token that ends a
    text, or "last", the last place. `project_images`: a linear map follows the image tower, without which feature_dim
    is its width. `text_bias`: the map after the text tower has a bias. `scale` is what cosines are multiplied with at
    first, `bias` what is then added, null for nothing, neither then nor later. Raises ValueError for parts that do not
    fit together, and for an unknown option.
    """

    logit_bias: Tensor

    def __init__(
        self,
        *,
        encoder: nn.Module,
        text: nn.Module,
        patch_size: Pixels | None,
        feature_dim: Width,
        text_pool: str,
        project_images: bool,
        text_bias: bool,
        scale: Scale,
        bias: Real | None,
    ):
        super().__init__()
        check_name("text_pool", text_pool, TEXT_POOLS)
        self.encoder, self.text = check_towers(encoder, text, patch_size)
        width = self.encoder.heads()[0].in_features
        if not project_images and width != feature_dim:
            raise ValueError(
                f"feature_dim is {feature_dim}, but the images' features have {width} numbers; make them equal, or set "
                "project_images=true"
            )
        self.depth = max(self.encoder.depth, self.text.depth)
        self.text_pool = TEXT_POOLS[text_pool]()
        self.image_projection = nn.Linear(width, feature_dim, bias=False) if project_images else nn.Identity()
        self.text_projection = nn.Linear(self.text.embed_dim, feature_dim, bias=text_bias)
        for projection in (self.image_projection, self.text_projection):
            projection.apply(partial(initialize, scheme=self.encoder.scheme))
        self.logit_scale = nn.Parameter(torch.full((1,), math.log(scale)))
        if bias is None:
            self.register_buffer("logit_bias", torch.zeros(1), persistent=False)
        else:
            self.logit_bias = nn.Parameter(torch.full((1,), float(bias)))
        self.encoder.head = nn.Identity()  # type: ignore[assignment]  # it would get no gradient

    def forward(self, words: Tensor, lengths: Tensor, x: Tensor, grid: Grids | None = None) -> ImageTextFeatures:
        return ImageTextFeatures(
            self.encode_images(x, grid), self.encode_texts(words, lengths), self.logit_scale.exp(), self.logit_bias
        )

    def encode_images(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> (B, F), of length 1."""
        return F.normalize(self.image_projection(self.represent(x, grid)).float(), dim=1)

    def encode_texts(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Tokens (B, M), and how many of them are a text's (B,) -> (B, F), of length 1."""
        return F.normalize(self.text_projection(self.text_pool(self.text(words), lengths)).float(), dim=1)

    def represent(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Encode images by the image tower, before the projection. -> (B, its width)"""
        return self.encoder.represent(x, grid)

    def heads(self) -> list[nn.Linear]:
        """Return no layers: there is no head."""
        return []

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: the towers', biases, and scale and bias of logits."""
        towers: dict[str, Tower] = {"encoder": self.encoder, "text": self.text}
        own = {name for name, parameter in self.named_parameters() if parameter.ndim == 1}
        return own | {f"{key}.{name}" for key, tower in towers.items() for name in tower.no_weight_decay()}

    def outputs(self) -> set[str]:
        """Names of the parameters that give the outputs, as a head does."""
        return {name for name, _ in self.named_parameters() if "_projection." in name or name.startswith("logit_")}

    def get_layer_id(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the embeddings, then the blocks of either tower, the last at depth, and
        depth+1 what follows them."""
        towers: dict[str, Tower] = {"encoder": self.encoder, "text": self.text}
        key, _, within = name.partition(".")
        if key not in towers:
            return self.depth + 1
        layer = towers[key].get_layer_id(within)
        return layer and layer + self.depth - towers[key].depth


def check_towers(encoder: nn.Module, text: nn.Module, patch_size: int | None) -> tuple[VisionTransformer, TextEncoder]:
    if not isinstance(encoder, VisionTransformer) or len(encoder.heads()) != 1:
        raise ValueError(f"encoder is a {type(encoder).__name__}; choose a plain ViT")
    if not isinstance(text, TextEncoder):
        raise ValueError(f"text is a {type(text).__name__}; it must be a TextEncoder")
    own = encoder.patch_embed.patch_size
    if patch_size not in (None, own):  # null: it is given pixels
        raise ValueError(f"patch_size is {patch_size}, but the encoder's is {own}; set only encoder.patch_size")
    return encoder, text
