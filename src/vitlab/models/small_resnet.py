"""The ResNets for images of 32x32 (He et al., 2016, arXiv:1512.03385, section 4.2), to compare a small ViT with.

B batch, C channels, H W image height and width, K num_classes
"""

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.ranges import Count, Depth, Pixels, Width


class Shortcut(nn.Module):
    """Every second pixel, and zeros for the new channels (option A): (B, C, H, W) -> (B, 2C, H/2, W/2)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))


def small_resnet(
    *, depth: Depth, width: Width, patch_size: Pixels | None, in_chans: Count, num_classes: Count
) -> nn.Module:
    """Three stages of (depth - 2) / 6 blocks, of `width`, twice and four times as many channels. (B, C, H, W) -> (B, K)

    The paper's width is 16. Raises ValueError for a depth that is not 6n + 2.
    """
    from torchvision.models.resnet import BasicBlock  # seconds that no ViT should wait for

    if patch_size is not None:
        raise ValueError("a ResNet takes images, not patches; leave patch_size null")
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth {depth} is not 8, 14, 20, 26, 32 …; set one of these")
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(in_chans, width, kernel_size=3, padding=1, bias=False),
        bn1=nn.BatchNorm2d(width),
        relu=nn.ReLU(),
    )
    channels = width
    for stage in range(3):
        blocks: list[nn.Module] = [BasicBlock(channels, channels) for _ in range((depth - 2) // 6)]
        if stage > 0:
            blocks[0] = BasicBlock(channels, 2 * channels, stride=2, downsample=Shortcut())
            blocks[1:] = [BasicBlock(2 * channels, 2 * channels) for _ in blocks[1:]]
            channels *= 2
        layers[f"layer{stage + 1}"] = nn.Sequential(*blocks)
    layers |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(channels, num_classes)}
    model = nn.Sequential(layers)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
