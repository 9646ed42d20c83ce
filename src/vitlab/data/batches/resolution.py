"""Schedule the image size: small images first, which cost less, the full size at the end."""

from collections.abc import Sequence
from itertools import pairwise

from vitlab.ranges import Pixels, Share


class ProgressiveResolution:
    """`scales[k]` of image_size, in whole patches, until the share `until[k]` of all optimizer steps, and image_size
    from there on (Howard, 2018, for ResNets; Tan and Le, 2021, arXiv:2104.00298, section 4).

    Raises ValueError for a model that cuts no patches, for a scale outside (0, 1), and unless the shares grow and lie
    between 0 and 1, one for each scale.
    """

    def __init__(
        self, *, image_size: Pixels, patch_size: Pixels | None, scales: Sequence[Share], until: Sequence[Share]
    ):
        if patch_size is None:
            raise ValueError(
                "changing image sizes need a model with a patch_size; choose another model, or resolution=full"
            )
        if len(scales) != len(until) or any(b <= a for a, b in pairwise([0.0, *until, 1.0])):
            raise ValueError(
                f"resolution.until {list(until)} is not one share of the steps for each of resolution.scales "
                f"{list(scales)}, growing between 0 and 1"
            )
        if not all(0 < scale < 1 for scale in scales):
            raise ValueError(f"resolution.scales {list(scales)} hold a value that is not between 0 and 1")
        self.sizes = [max(round(scale * image_size / patch_size), 1) * patch_size for scale in scales]
        self.until = list(until)

    def image_size(self, step: int, num_steps: int) -> int:
        """Give the image size at an optimizer step out of `num_steps`; 0: the data's own."""
        for size, share in zip(self.sizes, self.until, strict=True):
            if step < round(share * num_steps):
                return size
        return 0
