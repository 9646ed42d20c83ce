"""One split as a map-style data set: read, decode, crop, transform, all on the CPU and in uint8.

B images, C channels, H W image height and width
"""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2 import functional as F

from vitlab.data.batches.batch import RawBatch, Sample, UnreadableImage, collate
from vitlab.data.images.crop import Crop, Crops
from vitlab.data.images.decoding import DAMAGE, Picture, open_image
from vitlab.data.images.images import Transform
from vitlab.data.images.resampling import make_image, resample
from vitlab.data.order.sampler import Key
from vitlab.data.pools.packed_names import format_name
from vitlab.data.pools.pool import Pool, Stored
from vitlab.data.targets import Targets
from vitlab.errors import DataError
from vitlab.seeding import draw_numbers, make_seed, seed_cpu

Views = list[tuple[Crop, Crops]]  # a crop, and what it draws for each image of a batch


@dataclass(eq=False)
class Split(Dataset[Any]):
    """The samples `indices` (n,) of a pool."""

    pool: Pool
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def targets(self) -> Targets:
        return self.pool.targets[self.indices]

    def words(self, index: int, class_names: Sequence[str]) -> str:
        """Return the label of a sample, for a reader."""
        return self.pool.targets.words(int(self.indices[index]), class_names)

    def get_question(self, index: int) -> str:
        """Return the question about a sample; "": there is none."""
        return self.pool.targets.get_question(int(self.indices[index]))

    def name(self, index: int) -> str:
        return format_name(self.pool.name(int(self.indices[index])))


@dataclass(eq=False)
class ImageSplit(Split):
    """The samples `indices` of a pool. Item (epoch, i) -> Sample, or Unreadable for a file that cannot be decoded;
    items of a whole batch -> RawBatch.

    `crop` draws from numbers that are a function of (seed, epoch, i), `transform` (None: nothing) from torch's
    generator, which is seeded by them: the same sample in the same epoch is augmented the same way, in whichever worker
    or process, and from whichever cache. Raises DataError for an image with other than `in_chans` channels.
    """

    _: KW_ONLY
    image_mode: str | None
    in_chans: int
    crop: Crop
    transform: Transform | None
    seed: int

    def replace_crop(self, crop: Crop, transform: Transform | None) -> "ImageSplit":
        """Copy the data set with another crop and transform."""
        other = copy.copy(self)
        other.crop, other.transform = crop, transform
        return other

    def replace_pool(self, pool: Pool) -> "ImageSplit":
        """Copy the data set, reading from another pool of the same images."""
        other = copy.copy(self)
        other.pool = pool
        return other

    @property
    def groups(self) -> np.ndarray | None:
        """Return the number of each sample's shard (n,), where the pool has shards."""
        return None if self.pool.groups is None else self.pool.groups[self.indices]

    def __getitem__(self, key: Key | tuple[int, int]) -> Sample | UnreadableImage:
        return self.samples([Key(*key)])[0]

    def __getitems__(self, keys: Sequence[Key]) -> RawBatch:
        return self.batch(keys)

    def batch(self, keys: Sequence[Key], place: Tensor | None = None) -> RawBatch:
        """Load and collate the samples of one batch, their pixels in `place` (bytes,) where it is given."""
        samples = self.samples(keys)
        places = np.array([s.index for s in samples if isinstance(s, Sample)], dtype=int)
        return collate(samples, self.collate_targets(places), self.crop.find_mixed_patch_size(), place)

    def collate_targets(self, places: np.ndarray) -> Any:
        return self.pool.targets[self.indices[places]].collate()

    def samples(self, keys: Sequence[Key]) -> list[Sample | UnreadableImage]:
        """Load and crop the images of one batch."""
        pictures = self.pictures(keys)
        sizes = np.array([self.source_size(key, p) for key, p in zip(keys, pictures, strict=True)])
        views = self.views(keys, sizes)
        return [self.sample(key, pictures[k], sizes[k], views, k) for k, key in enumerate(keys)]

    def views(self, keys: Sequence[Key], sizes: np.ndarray) -> Views:
        """Draw the crops of each view of a batch."""
        assert len({key.image_size for key in keys}) == 1, "the images of a batch have one size"
        views = (self.crop.resize(keys[0].image_size) if keys[0].image_size else self.crop).views()
        return [(crop, crop(sizes, self.numbers(keys, crop.draws, v, len(views)))) for v, crop in enumerate(views)]

    def numbers(self, keys: Sequence[Key], draws: int, view: int = 0, num_views: int = 1) -> np.ndarray:
        """Return the random numbers that the crops of a view are made from, (B, draws)."""
        counters = np.array([(self.seed, key.epoch, key.index, key.view * num_views + view) for key in keys])
        return draw_numbers("crop", counters, draws)

    def pictures(self, keys: Sequence[Key]) -> list[Picture | Exception]:
        """Open the images of a batch and read their headers; an exception stands for one that cannot be read."""
        pictures: list[Picture | Exception] = []
        for stored in self.load_stored(keys):
            try:
                pictures.append(stored if isinstance(stored, Exception) else open_image(stored, self.image_mode))
            except DAMAGE as error:
                pictures.append(error)
        return pictures

    def load_stored(self, keys: Sequence[Key]) -> list[Stored | Exception]:
        """Load images as the pool stores them, or composes them for this epoch."""
        places = [int(self.indices[key.index]) for key in keys]
        if not self.pool.draws:
            return self.pool.load_many(places)
        counters = np.array([(self.seed, key.epoch, key.index) for key in keys])
        return self.pool.compose(places, draw_numbers("composition", counters, self.pool.draws))

    def source_size(self, key: Key, picture: Picture | Exception) -> tuple[int, int]:
        """Return height and width in the source, which a cache may hold smaller; (1, 1) for an unreadable image."""
        if isinstance(picture, Exception):
            return 1, 1
        return self.pool.size(int(self.indices[key.index])) or picture.size

    def sample(
        self, key: Key, picture: Picture | Exception, size: np.ndarray, views: Views, k: int
    ) -> Sample | UnreadableImage:
        try:
            if isinstance(picture, Exception):
                raise picture
            images = crop_image(picture, size, views, k)
        except DAMAGE as error:
            return UnreadableImage(self.name(key.index), str(error) or type(error).__name__, key.index)
        if self.transform is not None:
            images = [self.transform_image(image, key, key.view * len(views) + v) for v, image in enumerate(images)]
        if images[0].shape[0] != self.in_chans:
            raise DataError(
                f"{self.name(key.index)} has {images[0].shape[0]} channels, but data.in_chans is {self.in_chans}; "
                "set data.images.mode (L: 1 channel, RGB: 3) to convert every image"
            )
        return Sample(tuple(images), key.index)

    def transform_image(self, image: Tensor, key: Key, view: int) -> Tensor:
        assert self.transform is not None
        counters = (key.epoch, key.index, view) if view else (key.epoch, key.index)
        with seed_cpu(make_seed("augmentation", self.seed, *counters)):
            given = make_image(image.permute(1, 2, 0).numpy()) if image.shape[0] in (1, 3, 4) else image
            changed = self.transform(given)
        changed = F.pil_to_tensor(changed) if isinstance(changed, Image.Image) else changed
        return cast(Tensor, changed)


def crop_for_evaluation(stored: Stored, crop: Crop, image_mode: str | None) -> Tensor:
    """Crop one image without anything random. -> uint8 (C, h, w). Raises DamagedImage."""
    picture = open_image(stored, image_mode)
    size = np.array([picture.size])
    return crop_image(picture, size[0], [(crop, crop(size, np.ones((1, crop.draws))))], 0)[0]


def crop_image(picture: Picture, size: np.ndarray, views: Views, k: int) -> list[Tensor]:
    """Decode the k-th image once and cut all its views out of it. `size` is its (height, width) in the source. -> uint8
    (C, h, w) each. Raises DamagedImage."""
    pixels, scale = picture.pixels(choose_decoding_size(size, views, k))
    height, width = picture.size[0] / size[0] / scale, picture.size[1] / size[1] / scale
    images = []
    for crop, crops in views:
        box = crops.boxes[k] * (width, height, width, height)
        image = resample(pixels, box, tuple(crops.sizes[k].tolist()), crop.interpolation, crop.exact)
        if crops.shifts[k].any():
            image = shift_image(image, *crops.shifts[k].tolist())
        images.append(image.flip(-1) if crops.flips[k] else image)
    return images


def choose_decoding_size(size: np.ndarray, views: Views, k: int) -> tuple[float, float] | None:
    """Return the height and width at which the whole image has as many pixels as its sharpest view needs; None: all of
    them."""
    if any(crop.exact for crop, _ in views):
        return None
    boxes, sizes = (np.array([getattr(crops, part)[k] for _, crops in views]) for part in ("boxes", "sizes"))
    height, width = (sizes * size / (boxes[:, [3, 2]] - boxes[:, [1, 0]])).max(axis=0)
    return height, width


def shift_image(image: Tensor, down: int, right: int) -> Tensor:
    """Move an image (C, H, W); zeros move in."""
    H, W = image.shape[-2:]
    result = image.new_zeros(image.shape)
    result[:, max(down, 0) : H + min(down, 0), max(right, 0) : W + min(right, 0)] = image[
        :, max(-down, 0) : H + min(-down, 0), max(-right, 0) : W + min(-right, 0)
    ]
    return result
