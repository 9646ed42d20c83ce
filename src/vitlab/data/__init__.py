"""Images and texts as batches for the trainer.

The path of a training batch:

1. `image_datamodule.py`: `train_dataloader` puts the order, the split and the workers together
2. `delivery.py`: `loader` prepares worker processes, which write into shared memory, or none
3. `order/sampler.py`: `__iter__` of `TrainingOrder` yields the keys of each micro-batch, a function of (seed, step)
4. `loading/dataset.py`: `__getitems__` of `ImageSplit` reads, crops and augments the images of a batch
5. `images/decoding.py`: `open_image` reads an image's header, `pixels` decodes it
6. `images/random_crop.py`: `__call__` draws the boxes of a batch from counted random numbers
7. `images/resampling.py`: `resample` resizes a box of an image
8. `batches/batch.py`: `collate` stacks them to a `RawBatch`, which is copied to the device
9. `batches/preprocessing.py`: `finish_batch` turns it into the `Batch` that the model takes: normalised, cut into
   patches

Before that come `sources/`, `generated/` and `shards/`, where images and targets lie, `targets/`, what images are
labelled with, `pools/`, the samples of each split, and `cache/`, the same decoded or made smaller once.
`text_datamodule.py` does the same for texts without images.
"""

from vitlab.data.batches.mixing import Mixing
from vitlab.data.batches.resolution import ProgressiveResolution
from vitlab.data.cache import Cache
from vitlab.data.datamodule import DataModule
from vitlab.data.delivery import Loading
from vitlab.data.generated.digit_lines import DigitLines, DigitSums
from vitlab.data.generated.digit_questions import DigitQuestions
from vitlab.data.generated.number_words import NumberWords
from vitlab.data.generated.scenes import Scenes
from vitlab.data.generated.synthetic import Synthetic, SyntheticMultilabel
from vitlab.data.generated.synthetic_tones import SyntheticTones
from vitlab.data.image_datamodule import ImageDataModule
from vitlab.data.images.augmentation import GaussianBlur, RandomErasing
from vitlab.data.images.images import Images
from vitlab.data.images.multi_crop import MultiCrop
from vitlab.data.images.native_shape import LineCrop, TokenBudget
from vitlab.data.images.random_crop import RandomResizedCrop
from vitlab.data.images.squares import CenterCrop, ShiftedCrop, WholeImage
from vitlab.data.order.sampler import Order
from vitlab.data.pools.pool import ArrayPool, Source
from vitlab.data.pools.splits import Splits, SplitsOfEnough
from vitlab.data.sources.arrays import Arrays
from vitlab.data.sources.digits import Digits
from vitlab.data.sources.folder import Folder
from vitlab.data.sources.huggingface import HuggingFace
from vitlab.data.sources.imagenet import ImageNet
from vitlab.data.sources.listing import Listing
from vitlab.data.sources.shards import Shards
from vitlab.data.sources.text_pairs import TextColumn, TextPairs
from vitlab.data.sources.torchvision_sources import TorchvisionSource
from vitlab.data.targets import OneClass
from vitlab.data.text_datamodule import TextDataModule

__all__ = [
    "ArrayPool",
    "Arrays",
    "Cache",
    "CenterCrop",
    "DataModule",
    "DigitLines",
    "DigitQuestions",
    "DigitSums",
    "Digits",
    "Folder",
    "GaussianBlur",
    "HuggingFace",
    "ImageDataModule",
    "ImageNet",
    "Images",
    "LineCrop",
    "Listing",
    "Loading",
    "Mixing",
    "MultiCrop",
    "NumberWords",
    "OneClass",
    "Order",
    "ProgressiveResolution",
    "RandomErasing",
    "RandomResizedCrop",
    "Scenes",
    "Shards",
    "ShiftedCrop",
    "Source",
    "Splits",
    "SplitsOfEnough",
    "Synthetic",
    "SyntheticMultilabel",
    "SyntheticTones",
    "TextColumn",
    "TextDataModule",
    "TextPairs",
    "TokenBudget",
    "TorchvisionSource",
    "WholeImage",
]
