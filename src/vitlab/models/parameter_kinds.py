"""What the parameters of a model are, whatever library it is of: an optimizer tells them apart by that alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from vitlab.models.representation import head_names

ATTENTION = {"attn", "cross_attn", "self_attention"}  # as we, timm and torchvision call the layers, tokens and tables
TABLES = {"cls_token", "class_token", "dist_token", "reg_token"}
TABLES |= {"pos_embed", "pos_embedding", "relative_position_bias_table"}


@dataclass(frozen=True)
class ParameterKinds:
    """Names of parameters: those that take no weight decay, those of the head, of attention layers, and of what gives
    the outputs. `layers` says to which layer each belongs, 0 the embeddings and `depth` + 1 what follows the blocks;
    None for a model that does not tell. `model` is what messages call it."""

    model: str
    undecayed: set[str]
    head: set[str]
    attention: set[str]
    outputs: set[str]
    layers: Mapping[str, int] | None
    depth: int


def parameter_kinds(model: nn.Module) -> ParameterKinds:
    """Ask a model of ours. Of another one no weight decay is taken by tensors of one dimension, tokens, tables of
    positions, and what its `no_weight_decay` names, where it has that."""
    parameters, head = dict(model.named_parameters()), head_names(model)
    told = set(model.no_weight_decay()) if hasattr(model, "no_weight_decay") else set()  # type: ignore[operator]
    ours = hasattr(model, "get_layer_id")
    if not ours:
        told |= {name for name, p in parameters.items() if p.ndim <= 1 or name.split(".")[-1] in TABLES}
    return ParameterKinds(
        model=type(model).__name__,
        undecayed=told,
        head=head,
        attention={name for name in parameters if not ATTENTION.isdisjoint(name.split("."))},
        outputs=head | (model.outputs() if hasattr(model, "outputs") else set()),  # type: ignore[operator]
        layers={name: model.get_layer_id(name) for name in parameters} if ours else None,  # type: ignore[operator]
        depth=int(model.depth) if ours else 0,  # type: ignore[arg-type]
    )
