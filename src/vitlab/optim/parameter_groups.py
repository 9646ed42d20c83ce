"""Which parameter gets which learning rate and weight decay."""

from typing import Any, Protocol, cast

from torch import nn


class DescribesParameters(Protocol):
    """A model that knows which of its parameters take no weight decay, and which layer each belongs to."""

    depth: int

    def no_weight_decay(self) -> set[str]: ...

    def layer_of(self, name: str) -> int: ...


def parameter_groups(
    model: nn.Module, *, lr: float, weight_decay: float, layer_decay: float = 1.0
) -> list[dict[str, Any]]:
    """Split the trainable parameters into groups of one learning rate and one weight decay, each in exactly one.

    A group is {"name", "params", "names", "lr", "weight_decay"}. With layer_decay below 1, layer l of L learns at
    lr · layer_decay^(L - l) (Clark et al., 2020, arXiv:2003.10555; Bao et al., 2022, arXiv:2106.08254). For a model
    that describes nothing, tensors of one dimension take no weight decay, and layer_decay raises ValueError.
    """
    described = cast(DescribesParameters, model) if hasattr(model, "no_weight_decay") else None
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay {layer_decay} is not above 0 and at most 1")
    if layer_decay != 1.0 and described is None:
        raise ValueError(f"layer_decay needs a model that names its layers, which {type(model).__name__} does not")
    exempt = described.no_weight_decay() if described else {n for n, p in model.named_parameters() if p.ndim <= 1}
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        layer, scale = 0, 1.0
        if described is not None and layer_decay != 1.0:
            layer = described.layer_of(name)
            scale = layer_decay ** (described.depth + 1 - layer)
        decays = name not in exempt
        key = (layer, decays)
        if key not in groups:
            label = f"layer {layer}, " if layer_decay != 1.0 else ""
            groups[key] = {
                "name": label + ("decay" if decays else "no decay"),
                "params": [],
                "names": [],
                "lr": lr * scale,
                "weight_decay": weight_decay if decays else 0.0,
            }
        groups[key]["params"].append(parameter)
        groups[key]["names"].append(name)
    return list(groups.values())
