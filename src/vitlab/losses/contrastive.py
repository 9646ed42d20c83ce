"""Contrast: an image and its text are to be more alike than those of different pairs. By a softmax over all pairs of a
batch (Radford et al., 2021, arXiv:2103.00020, CLIP, figure 3), or by a sigmoid for each (Zhai et al., 2023,
arXiv:2303.15343, SigLIP, algorithm 1).

B pairs at hand, G pairs of all processes, D features
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.nn.functional import all_gather


class Pairs(NamedTuple):
    """Features of length 1 of B images and their texts (B, D), and of all images and texts (G, D) that they are told
    from, among which the B begin at `first`; None: they are all there are."""

    image: Tensor
    text: Tensor
    images: Tensor | None = None
    texts: Tensor | None = None
    first: int = 0

    def target(self) -> Tensor:
        """The place of each pair among all. -> (B,)"""
        return torch.arange(self.first, self.first + len(self.image), device=self.image.device)


def gather_pairs(image: Tensor, text: Tensor) -> Pairs:
    """The pairs of this process (B, D) among those of all, each of which has B and calls it. Gradients flow back to the
    process that a feature comes from, so that their mean over the processes is the gradient of the mean loss."""
    if not (dist.is_available() and dist.is_initialized()):
        return Pairs(image, text)
    images, texts = (torch.cat(all_gather(own.contiguous())) for own in (image, text))
    return Pairs(image, text, images, texts, dist.get_rank() * len(image))


def softmax_contrastive(pairs: Pairs, scale: Tensor, bias: Tensor) -> Tensor:
    """Cross-entropy of which text belongs to an image, and which image to a text: the mean of both cross-entropies of a
    pair, in nats. `scale`, one over the temperature, multiplies the cosines; a `bias` changes nothing here. -> (B,)"""
    of_images, of_texts = measure_similarities(pairs, scale, bias)
    losses = [F.cross_entropy(logits, pairs.target(), reduction="none") for logits in (of_images, of_texts)]
    return (losses[0] + losses[1]) / 2


def sigmoid_contrastive(pairs: Pairs, scale: Tensor, bias: Tensor) -> Tensor:
    """Whether an image and a text belong together, asked of an image and all texts: -Σⱼ log σ(±(scale·cosine + bias)),
    in nats. -> (B,)"""
    logits, _ = measure_similarities(pairs, scale, bias)
    signs = 2 * F.one_hot(pairs.target(), logits.shape[1]) - 1
    return -F.logsigmoid(signs * logits).sum(dim=1)


def measure_similarities(pairs: Pairs, scale: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Measure how alike each image is to all texts, and each text to all images, in float32. -> (B, G) each"""
    images = pairs.image if pairs.images is None else pairs.images
    texts = pairs.text if pairs.texts is None else pairs.texts
    with torch.autocast(pairs.image.device.type, enabled=False):  # in bfloat16 a hundredfold cosine is off by a half
        both = (pairs.image.float() @ texts.float().T, pairs.text.float() @ images.float().T)
        return both[0] * scale.float() + bias, both[1] * scale.float() + bias
