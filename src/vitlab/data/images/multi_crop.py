"""Several crops of each image, for tasks that compare views."""

from collections.abc import Sequence
from typing import Self

from vitlab.data.images.crop import Crop
from vitlab.ranges import Count, Natural


class MultiCrop(Crop):
    """Several views of an image, `num_large` by one crop and `num_small` by another: multi-crop (Caron et al., 2020,
    arXiv:2006.09882, section 3.2). Raises ValueError without a large one, or with small ones that are larger."""

    def __init__(self, *, large: Crop, num_large: Count, small: Crop, num_small: Natural):
        if num_small and small.image_size > large.image_size:
            raise ValueError(f"small.image_size {small.image_size} is above large.image_size {large.image_size}")
        super().__init__(image_size=large.image_size, interpolation=large.interpolation)
        self.large, self.num_large, self.small, self.num_small = large, num_large, small, num_small

    def views(self) -> Sequence[Crop]:
        return (self.large,) * self.num_large + (self.small,) * self.num_small

    def output_size(self) -> tuple[int, int] | None:
        return self.large.output_size()

    def resize(self, image_size: int) -> Self:
        other = super().resize(image_size)
        other.large = self.large.resize(image_size)
        other.small = self.small.resize(round(self.small.image_size * image_size / self.image_size))
        return other
