"""Decide which parameter learns, from which step on, at which learning rate and weight decay."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from torch import nn

PARTS = ("all", "head", "attention")


class Kinds(Protocol):
    """Names of parameters: those that take no weight decay, those of the head, of attention layers, and of what gives
    the outputs; and the layer of each, from 0 to `depth` + 1, None for a model that does not tell."""

    @property
    def model(self) -> str: ...
    @property
    def undecayed(self) -> Collection[str]: ...
    @property
    def head(self) -> Collection[str]: ...
    @property
    def attention(self) -> Collection[str]: ...
    @property
    def outputs(self) -> Collection[str]: ...
    @property
    def layers(self) -> Mapping[str, int] | None: ...
    @property
    def depth(self) -> int: ...


def parameter_groups(
    parameters: Mapping[str, nn.Parameter],
    kinds: Kinds,
    *,
    lr: float,
    weight_decay: float,
    layer_decay: float = 1.0,
    head_multiplier: float = 1.0,
    backbone_multiplier: float = 1.0,
    trained: str = "all",
    unfreeze_step: int | None = None,
    hidden_only: bool = False,
) -> list[dict[str, Any]]:
    """Split the trainable parameters into groups of one learning rate and one weight decay, each in exactly one.

    A group is {"name", "params", "names", "lr", "weight_decay", "from_step"}. With layer_decay below 1, layer l of L
    learns at lr · layer_decay^(L - l) (Clark et al., 2020, arXiv:2003.10555; Bao et al., 2022, arXiv:2106.08254).

    The head's learning rate is multiplied by `head_multiplier`, all others' by `backbone_multiplier`. `trained` "head"
    freezes all but the head, "attention" all but head and attention layers (Touvron et al., 2022,
    arXiv:2203.09795, section 4). What is frozen takes no gradient and is in no group, unless it learns from
    `unfreeze_step` on. `hidden_only` marks all but the matrices between the first layer and the outputs with
    "use_fallback". Raises ValueError for a part that the model does not have.
    """
    layers = kinds.layers if layer_decay != 1.0 else {}
    if layers is None:
        raise ValueError(f"layer_decay needs a model that names its layers, but {kinds.model} does not; set it to null")
    named = [(name, parameter) for name, parameter in parameters.items() if parameter.requires_grad]
    learns = list_learning(dict(named), kinds, trained)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, parameter in named:
        if name not in learns and unfreeze_step is None:
            parameter.requires_grad_(False)
            continue
        layer, exempt = layers.get(name), name in kinds.undecayed
        scale = 1.0 if layer is None else layer_decay ** (kinds.depth + 1 - layer)
        rate = lr * scale * (head_multiplier if name in kinds.head else backbone_multiplier)
        from_step = 0 if name in learns else unfreeze_step
        apart = hidden_only and (parameter.ndim != 2 or name in kinds.outputs or exempt)
        key = (layer, rate, exempt, from_step, apart)
        if key not in groups:
            words = [f"layer {layer}"] if layer is not None else []
            words += ["head" if name in kinds.head else "backbone"] if head_multiplier != backbone_multiplier else []
            words += ["no decay" if exempt else "decay"]
            words += [f"from step {from_step}"] if from_step else []
            words += ["by the fallback"] if apart else []
            groups[key] = {
                "name": ", ".join(words),
                "params": [],
                "names": [],
                "lr": rate,
                "weight_decay": 0.0 if exempt else weight_decay,
                "from_step": from_step,
                **({"use_fallback": apart} if hidden_only else {}),
            }
        groups[key]["params"].append(parameter)
        groups[key]["names"].append(name)
    return list(groups.values())


def list_learning(parameters: Collection[str], kinds: Kinds, trained: str) -> set[str]:
    """List the names of the parameters that learn from the first step on. Raises ValueError if there are none."""
    if trained == "all":
        return set(parameters)
    if trained == "attention":
        if attention := set(kinds.attention) & set(parameters):
            return {*kinds.head, *attention}
        raise ValueError("optimizer.trained 'attention' needs a model with attention layers, but this one has none")
    if not kinds.head:
        raise ValueError(f"optimizer.trained '{trained}' needs a model with a head, but this one has none")
    return set(kinds.head)
