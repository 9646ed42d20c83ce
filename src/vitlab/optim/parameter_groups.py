"""Which parameter learns, from when on, at which learning rate and weight decay."""

from collections.abc import Collection
from typing import Any, Protocol, cast

from torch import nn

PARTS = ("all", "head", "attention")
ATTENTION = {"attn", "self_attention"}  # as timm and torchvision call the layers, and the tokens and tables
TABLES = {"cls_token", "class_token", "dist_token", "reg_token"}
TABLES |= {"pos_embed", "pos_embedding", "relative_position_bias_table"}


class DescribesParameters(Protocol):
    """A model that knows which of its parameters take no weight decay, and which layer each belongs to."""

    depth: int

    def no_weight_decay(self) -> set[str]: ...

    def layer_of(self, name: str) -> int: ...


def parameter_groups(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    layer_decay: float = 1.0,
    head: Collection[str] = (),
    head_multiplier: float = 1.0,
    backbone_multiplier: float = 1.0,
    trained: str = "all",
    unfreeze_step: int | None = None,
    hidden_only: bool = False,
) -> list[dict[str, Any]]:
    """Split the trainable parameters into groups of one learning rate and one weight decay, each in exactly one.

    A group is {"name", "params", "names", "lr", "weight_decay", "from_step"}. With layer_decay below 1, layer l of L
    learns at lr · layer_decay^(L - l) (Clark et al., 2020, arXiv:2003.10555; Bao et al., 2022, arXiv:2106.08254). For a
    model that does not describe its parameters, layer_decay raises ValueError, and no weight decay is taken by tensors
    of one dimension, tokens, tables of positions, and what its `no_weight_decay`, where it has that, names.

    `head` names the head's parameters, whose learning rate is multiplied by `head_multiplier`, all others' by
    `backbone_multiplier`. `trained` "head" freezes all but these, "attention" all but these and the attention layers
    (Touvron et al., 2022, arXiv:2203.09795, section 4). What is frozen takes no gradient and is in no group, unless it
    learns from `unfreeze_step` on. `hidden_only` marks all but the matrices between the first layer and the last, the
    head's or the model's `outputs`, with "use_fallback".
    Raises ValueError for values out of range, and for a part that the model does not have.
    """
    described = cast(DescribesParameters, model) if hasattr(model, "layer_of") else None
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay {layer_decay} is not above 0 and at most 1")
    if layer_decay != 1.0 and described is None:
        raise ValueError(f"layer_decay needs a model that names its layers, which {type(model).__name__} does not")
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    learns = learning(dict(named), head, trained)
    exempt = described.no_weight_decay() if described else undecayed(model, dict(named))
    last = {*head, *(model.outputs() if hasattr(model, "outputs") else ())}  # type: ignore[operator]
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, parameter in named:
        if name not in learns and unfreeze_step is None:
            parameter.requires_grad_(False)
            continue
        layer = described.layer_of(name) if described is not None and layer_decay != 1.0 else None
        scale = 1.0 if layer is None or described is None else layer_decay ** (described.depth + 1 - layer)
        rate = lr * scale * (head_multiplier if name in head else backbone_multiplier)
        from_step = 0 if name in learns else unfreeze_step
        apart = hidden_only and (parameter.ndim != 2 or name in last or name in exempt)
        key = (layer, rate, name in exempt, from_step, apart)
        if key not in groups:
            words = [f"layer {layer}"] if layer is not None else []
            words += ["head" if name in head else "backbone"] if head_multiplier != backbone_multiplier else []
            words += ["no decay" if name in exempt else "decay"]
            words += [f"from step {from_step}"] if from_step else []
            words += ["by the fallback"] if apart else []
            groups[key] = {
                "name": ", ".join(words),
                "params": [],
                "names": [],
                "lr": rate,
                "weight_decay": 0.0 if name in exempt else weight_decay,
                "from_step": from_step,
                **({"use_fallback": apart} if hidden_only else {}),
            }
        groups[key]["params"].append(parameter)
        groups[key]["names"].append(name)
    return list(groups.values())


def undecayed(model: nn.Module, parameters: dict[str, nn.Parameter]) -> set[str]:
    """Names of the parameters that take no weight decay in a model that is not ours."""
    told = set(model.no_weight_decay()) if hasattr(model, "no_weight_decay") else set()  # type: ignore[operator]
    return told | {name for name, p in parameters.items() if p.ndim <= 1 or name.split(".")[-1] in TABLES}


def learning(parameters: Collection[str], head: Collection[str], trained: str) -> set[str]:
    """Names of the parameters that learn from the first step on. Raises ValueError if there are none."""
    if trained == "all":
        return set(parameters)
    found = set(head)
    if trained == "attention":
        attention = {name for name in parameters if not ATTENTION.isdisjoint(name.split("."))}
        if not attention:
            raise ValueError("optimizer.trained 'attention' needs a model with attention layers, and this one has none")
        found |= attention
    elif not found:
        raise ValueError(f"optimizer.trained '{trained}' needs a model with a head, and this one has none")
    return found
