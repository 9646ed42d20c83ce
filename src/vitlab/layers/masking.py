"""Random masking: of each image a part of the patches is seen, the rest hidden (He et al., 2022, arXiv:2111.06377).

B batch, N patches, K patches that are kept, D width
"""

import torch
from torch import Tensor


def num_hidden(num_patches: int, mask_ratio: float) -> int:
    """Count the patches of an image that a ratio hides. Raises ValueError unless some are hidden, and some are not."""
    hidden = round(num_patches * mask_ratio) if 0 < mask_ratio < 1 else 0
    if not 0 < hidden < num_patches:
        raise ValueError(
            f"mask_ratio {mask_ratio} hides {hidden} of {num_patches} patches; choose it so that "
            "some patches are hidden and some are visible"
        )
    return hidden


def random_keep(noise: Tensor, mask_ratio: float) -> Tensor:
    """The places of the patches that are kept: those with the least noise (appendix A.1). (B, N) -> (B, K)"""
    N = noise.shape[1]
    return noise.argsort(dim=1, stable=True)[:, : N - num_hidden(N, mask_ratio)]


def hidden_patches(keep: Tensor, num_patches: int) -> Tensor:
    """True where a patch is not kept. (B, K) -> (B, N)"""
    mask = torch.ones(keep.shape[0], num_patches, dtype=torch.bool, device=keep.device)
    return mask.scatter(1, keep, False)


def take_patches(x: Tensor, keep: Tensor) -> Tensor:
    """(B, N, D), (B, K) -> (B, K, D)"""
    return x.gather(1, keep[..., None].expand(-1, -1, x.shape[2]))


def put_patches(x: Tensor, keep: Tensor, among: Tensor) -> Tensor:
    """Patches back where they were taken from, `among` what stands in the other places.
    (B, K, D), (B, K), (B, N, D) -> (B, N, D)"""
    return among.scatter(1, keep[..., None].expand(-1, -1, x.shape[2]), x)
