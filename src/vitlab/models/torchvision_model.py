"""Build the models of torchvision, to compare with: ResNet and its kin.

B batch, C channels, H W image height and width, K num_classes
"""

from difflib import get_close_matches
from typing import Any

from torch import nn

from vitlab.ranges import Count, Pixels


def torchvision_model(
    *, name: str, patch_size: Pixels | None, in_chans: Count, num_classes: Count, small_images: bool
) -> nn.Module:
    """Any classification model of torchvision by its name, from random weights: (B, C, H, W) -> (B, K).

    Its first convolution is made anew when in_chans is not 3. `small_images` (ResNets only) takes the stem that He et
    al. (2016, arXiv:1512.03385, section 4.2) use on CIFAR: a 3x3 convolution of stride 1, and no max-pooling.
    Raises ValueError for a name that torchvision does not know.
    """
    import torchvision  # seconds that no ViT should wait for

    if patch_size is not None:
        raise ValueError(f"{name} takes images, not patches; leave patch_size null")
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        near = get_close_matches(name, known, n=5) or ["resnet18", "resnet50"]
        raise ValueError(f"torchvision has no classification model '{name}'; it has for instance {', '.join(near)}")
    # without auxiliary heads, which give a tuple in training
    plain: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=num_classes, **plain)
    if small_images:
        if not isinstance(model, torchvision.models.ResNet):
            raise ValueError(f"small_images needs a ResNet, but the model is {name}; set it to false")
        model.conv1 = nn.Conv2d(3, model.conv1.out_channels, kernel_size=3, padding=1, bias=False)
        model.maxpool = nn.Identity()
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    if in_chans != 3:
        replace_first_convolution(model, in_chans)
    return model


def replace_first_convolution(model: nn.Module, in_chans: int) -> None:
    """Give the first convolution another number of input channels; its weights start as He et al.'s do."""
    name, old = next((name, m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d))
    sizes: dict[str, Any] = {"kernel_size": old.kernel_size, "stride": old.stride, "padding": old.padding}
    new = nn.Conv2d(in_chans, old.out_channels, bias=old.bias is not None, **sizes)
    nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")
    if new.bias is not None:
        nn.init.zeros_(new.bias)
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, new)
