"""Do images mean the same in a mirror? Photographs do, digits and letters do not, nor do arrows to the left.

Half of the images are recognised by their nearest neighbours in the other half, as they are and mirrored. Where
mirrored ones are recognised less often, by more than chance does (McNemar, 1947, doi:10.1007/BF02295996), they differ.

n images, S pixels of a side
"""

from functools import partial

import torch
from torch import Tensor

from vitlab.features.nearest_neighbours import nearest_neighbours

DEVIATIONS = 2.0  # standard deviations above chance


def is_mirror_invariant(images: Tensor, target: Tensor, num_classes: int) -> bool:
    """Tell by small images (n, S, S) and their classes (n,); what cannot be told counts as the same."""
    if len(images) < 4:
        return True
    pixels = images.float() - images.float().mean(dim=(1, 2), keepdim=True)
    known, asked = pixels[::2].flatten(1), pixels[1::2]
    named = partial(
        nearest_neighbours, known, target[::2], k=[min(5, len(known))], num_classes=num_classes, temperature=0.07
    )
    plain, mirrored = (named(some.flatten(1))[0] == target[1::2] for some in (asked, asked.flip(-1)))
    lost, won = (plain & ~mirrored).sum(), (mirrored & ~plain).sum()
    return bool(lost - won <= DEVIATIONS * torch.sqrt(lost + won))
