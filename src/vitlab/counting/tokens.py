"""Why patches and not pixels: the cost of a sequence grows with the square of its length (ViT section 1).

N patches, T tokens, D embed_dim, L depth
"""

from typing import NamedTuple


class Sequence(NamedTuple):
    """An image as a sequence: `tokens` patches, the `scores` of one head in one layer, and the multiply-accumulates of
    the encoder for one image in matrices of weights and in QKᵀ and AV."""

    tokens: int
    scores: int
    weights: int
    attention: int


def sequence_cost(
    image_size: int, patch_size: int, *, num_prefix_tokens: int, embed_dim: int, depth: int, weights_per_token: int
) -> Sequence:
    """Count the encoder blocks alone: each token meets `weights_per_token` weights in them, and every token each other
    one in 2·D products for each of L layers."""
    N = (image_size // patch_size) ** 2
    T = N + num_prefix_tokens
    return Sequence(tokens=N, scores=T * T, weights=T * weights_per_token, attention=2 * T * T * embed_dim * depth)
