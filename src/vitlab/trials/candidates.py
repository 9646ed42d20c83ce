"""List the recipes that a fit tries, the most promising first."""

from collections.abc import Sequence
from dataclasses import dataclass

FEW = 5_000  # training images, below which the recipes for the digits suit: mixup, AdamW, more augmentation
SMALL = 64  # pixels of a side: the largest images that are taken at their own size
SHRUNK = (64, 128)  # sizes to which larger ones are shrunk
CACHE_BYTES = 2 * 10**9  # pixels of training images that may lie in the memory

AFFINE = (  # as for the digits: conf/data/digits.yaml
    "data.images.train_transform={_target_:torchvision.transforms.v2.RandomAffine,degrees:12,translate:[0.1,0.1],"
    "scale:[0.9,1.1],shear:8,interpolation:2}"
)


@dataclass(frozen=True)
class Candidate:
    """A recipe under a short name, the size of its images in pixels (None: that of published weights), and the words
    of the command line that choose it."""

    name: str
    image_size: int | None
    words: tuple[str, ...]


@dataclass(frozen=True)
class Images:
    """What the candidates depend on: the median of the shorter sides in pixels, the number of training images, their
    channels, and whether all have one size."""

    side: int
    count: int
    channels: int
    same_size: bool


def list_candidates(images: Images, weights: Sequence[str]) -> list[Candidate]:
    """List the candidates for such images. `weights` are the words that choose a model with published or own weights;
    with them, frozen features and fine-tuning come first."""
    sizes = [32 if images.side <= 32 else 8 * round(images.side / 8)] if images.side <= SMALL else SHRUNK
    pretrained = list_pretrained(images, weights) if weights else []
    scratch = [one for size in sizes for one in list_from_scratch(images, size)]
    return pretrained + scratch


def list_pretrained(images: Images, weights: Sequence[str]) -> list[Candidate]:
    """List ways to use weights: a linear head on frozen features, and fine-tuning all of the model."""
    found = [
        f"data.{key}=null" for key in ("image_size", "in_chans", "images.mode", "mean", "std")
    ]  # as the weights say
    shared = (*weights, "crop=fitting", *found, "loss.label_smoothing=0.0")
    return [
        Candidate("frozen", None, (*shared, "optimizer=adamw", "optimizer.trained=head", "optimizer.lr=3e-3")),
        Candidate("fine_tuned", None, (*shared, "optimizer=adamw", "optimizer.lr=1e-4", "optimizer.layer_decay=0.75")),
    ]


def list_from_scratch(images: Images, size: int) -> list[Candidate]:
    """List recipes for random weights, for images that are brought to `size` pixels."""
    shared = [f"data.image_size={size}", "crop=shifted" if images.same_size else "crop=fitting"]
    patch = size // 8  # 8 patches in a row
    on_device = size * size * images.channels * images.count <= CACHE_BYTES
    if images.count < FEW:
        own = [*shared, "global_batch_size=auto", "data.cache.kind=decoded", AFFINE]
        kinds = {
            "resnet": ("recipe=digits_resnet",),
            "vit": ("recipe=digits", f"model.patch_size={2 * patch}"),
            "vit_fine": ("recipe=digits", f"model.patch_size={patch}"),
            "resnet_wide": ("recipe=digits_resnet", "model.width=32"),
        }
    else:
        own = [*shared, f"data.cache.kind={'device' if on_device else 'decoded'}"]
        kinds = {
            "resnet": ("recipe=cifar10_cpu_resnet", "model.width=16"),
            "resnet_wide": ("recipe=cifar10_cpu_resnet",),
            "vit": ("recipe=cifar10_cpu", f"model.patch_size={patch}"),
            "vit_coarse": ("recipe=cifar10_cpu", "resolution=full", f"model.patch_size={2 * patch}"),
        }
    return [Candidate(f"{name}_{size}", size, (*words, *own)) for name, words in kinds.items()]
