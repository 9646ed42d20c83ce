"""Make an optimizer and the learning rates it starts from, as conf/optimizer/ states them."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vitlab.optim.parameter_groups import PARTS, Kinds, parameter_groups
from vitlab.ranges import Count, Factor, Positive, Unsigned

SCALINGS: dict[str, Callable[[float], float]] = {"none": lambda ratio: 1.0, "linear": float, "sqrt": math.sqrt}

SAME_FOR_ALL = {
    "layer_decay": 1.0,
    "head_multiplier": 1.0,
    "backbone_multiplier": 1.0,
    "trained": "all",
    "unfreeze_step": None,
}


class Optimization:
    """`algorithm` makes the optimizer; conf/optimizer/_optimizer.yaml says what each key means.

    With lr_scaling "linear" (Goyal et al., 2017, arXiv:1706.02677) or "sqrt" (Krizhevsky, 2014, arXiv:1404.5997) the
    learning rate is the one for `lr_scaling_batch` images, scaled to the global batch: `scaled_lr`. Raises ValueError
    for values out of range.
    """

    def __init__(
        self,
        *,
        algorithm: Callable[..., Optimizer],
        lr: Positive,
        lr_scaling: str,
        lr_scaling_batch: Count,
        global_batch_size: Count,
        weight_decay: Unsigned,
        layer_decay: Factor,
        head_multiplier: Positive,
        backbone_multiplier: Positive,
        trained: str,
        unfreeze_step: Count | None,
        hidden_only: bool,
    ):
        for key, value, options in (("lr_scaling", lr_scaling, SCALINGS), ("trained", trained, PARTS)):
            if value not in options:
                raise ValueError(f"{key} '{value}' is not one of: {', '.join(options)}")
        if unfreeze_step is not None and trained == "all":
            raise ValueError(
                f"unfreeze_step {unfreeze_step} has no effect with trained=all; set it to null, or set "
                "trained=head or trained=attention"
            )
        self.algorithm = algorithm
        self.lr_scale = SCALINGS[lr_scaling](global_batch_size / lr_scaling_batch)
        self.scaled_lr = lr * self.lr_scale
        self.options: dict[str, Any] = {
            "weight_decay": weight_decay,
            "layer_decay": layer_decay,
            "head_multiplier": head_multiplier,
            "backbone_multiplier": backbone_multiplier,
            "trained": trained,
            "unfreeze_step": unfreeze_step,
            "hidden_only": hidden_only,
        }

    def groups(self, parameters: Mapping[str, nn.Parameter], kinds: Kinds) -> list[dict[str, Any]]:
        """Divide a model's parameters into groups by their kinds."""
        return parameter_groups(parameters, kinds, lr=self.scaled_lr, **self.options)

    def make_groups(self, rates: Mapping[float, nn.Module], kinds: Kinds) -> list[dict[str, Any]]:
        """Make parameter groups of linear heads that learn side by side, each at a rate of its own in place of `lr`,
        scaled like it. Raises ValueError for options that tell layers and parts apart."""
        for key, value in SAME_FOR_ALL.items():
            if self.options[key] != value:
                raise ValueError(
                    f"{key} {self.options[key]} has no effect when only heads are trained; leave it at {value}"
                )
        groups = []
        for rate, head in rates.items():
            for group in parameter_groups(
                dict(head.named_parameters()), kinds, lr=rate * self.lr_scale, **self.options
            ):
                groups.append({**group, "name": f"lr {rate:g}, {group['name']}"})
        return groups

    def optimizer(self, groups: list[dict[str, Any]]) -> Optimizer:
        return self.algorithm([{key: value for key, value in group.items() if key != "names"} for group in groups])
