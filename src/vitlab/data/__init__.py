"""Patched image data. The path of a sample, room by room:

sources/    where images and targets come from
targets/    what images are labelled with: a class, several, a text, another model's output, nothing
pools/      what there is of each split; cache/ the same, decoded or made smaller once
order/      which sample comes at which step
images/     from its bytes to pixels, a crop and its augmentation, in uint8
loading/    a split as a data set, worker processes; shards/ what they read where there are millions of files
batches/    what a worker hands over, and on the device: normalise, mix, cut into patches

image_datamodule.py is Lightning's view of it, text_datamodule.py that of texts; delivery.py brings batches to a
device, checks.py says what cannot be.
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
from vitlab.data.text_datamodule import TextDataModule

__all__ = [
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
    "Order",
    "ProgressiveResolution",
    "RandomErasing",
    "RandomResizedCrop",
    "Scenes",
    "Shards",
    "ShiftedCrop",
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
