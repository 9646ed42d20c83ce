"""Any model of timm in the same harness (the optional extra `timm`).

B batch, C channels, H W image height and width, K num_classes
"""

from difflib import get_close_matches
from typing import Any

from torch import nn

from vitlab.ranges import Count, Pixels, Rate


def timm_model(
    *,
    name: str,
    image_size: Pixels | None,
    patch_size: Pixels | None,
    in_chans: Count,
    num_classes: Count,
    drop_rate: Rate,
    drop_path_rate: Rate | None,
) -> nn.Module:
    """timm's model of that name from random weights: (B, C, H, W) -> (B, K).

    `image_size` is for models that want to know it (timm's img_size), and null for the others; so is drop_path_rate.
    Raises ValueError when timm is not installed, knows no such model, or the model takes no such argument.
    """
    if patch_size is not None:
        raise ValueError("a model of timm takes images, not patches; leave patch_size null")
    try:
        import timm
    except ImportError as error:
        raise ValueError("model=timm needs timm: pip install timm") from error
    if not timm.is_model(name):
        near = get_close_matches(name, timm.list_models(), n=5) or ["resnet18", "convnext_tiny"]
        raise ValueError(f"timm has no model '{name}'; it has for instance {', '.join(near)}")
    optional = {"img_size": image_size, "drop_path_rate": drop_path_rate}
    given: dict[str, Any] = {key: value for key, value in optional.items() if value is not None}
    try:
        model = timm.create_model(name, num_classes=num_classes, in_chans=in_chans, drop_rate=drop_rate, **given)
    except TypeError as error:
        rule = "image_size (timm's img_size) and drop_path_rate are null for models without them"
        raise ValueError(f"timm's {name} refuses an argument ({error}); {rule}") from error
    assert isinstance(model, nn.Module)
    return model
