"""Divide a global batch among devices and micro-batches."""

from vitlab.errors import ConfigError


def divide_batch(global_batch_size: int, device_batch_size: int | None, world_size: int) -> tuple[int, int]:
    """Give the images a device takes at once, and the micro-batches it accumulates for one optimizer step. With
    device_batch_size null a device takes its whole share at once. Raises ConfigError for sizes that do not divide."""
    if global_batch_size < 1:
        raise ConfigError(f"global_batch_size {global_batch_size} is not at least 1")
    if device_batch_size is not None and device_batch_size < 1:
        raise ConfigError(
            f"data.device_batch_size {device_batch_size} is not at least 1; set it to null for the whole share of a "
            "device"
        )
    if global_batch_size % world_size:
        raise ConfigError(f"global_batch_size {global_batch_size} is not a multiple of the {world_size} devices")
    share = global_batch_size // world_size
    size = device_batch_size or share
    if share % size:
        raise ConfigError(
            f"global_batch_size {global_batch_size} over {world_size} device(s) is {share} images each, which is not "
            f"a multiple of data.device_batch_size {size}"
        )
    return size, share // size


def find_largest_share(global_batch_size: int, at_most: int, world_size: int) -> int | None:
    """Give the largest number of images, up to `at_most`, that divides a device's share; None if there is none."""
    share = global_batch_size // world_size
    return next((size for size in range(min(at_most, share), 0, -1) if share % size == 0), None)


def choose_batch_size(num_images: int, device_batch_size: int | None, world_size: int) -> int:
    """A global batch for a training split: 64, of few images a tenth, so that an epoch leaves out less than a tenth of
    them; a multiple of what the devices take at once, and at least that."""
    unit = world_size * (device_batch_size or 1)
    return max(min(64, num_images // 10) // unit, 1) * unit
