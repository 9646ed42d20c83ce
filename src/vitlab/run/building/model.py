"""Build the model of a config, and load the weights it starts from."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.nn import Module

from vitlab.config.build import build
from vitlab.config.keys import WEIGHTS
from vitlab.config.nodes import make_node, resolve_config
from vitlab.distributed.fully_sharded import units
from vitlab.errors import ConfigError, VitlabError
from vitlab.machine import ignore_cached_kernels, physical_memory
from vitlab.models.activation_checkpointing import checkpoint_activations

GIB = 2**30
# keys that the model's constructor does not see
OF_THE_RUN = tuple(WEIGHTS)
PUBLISHED = "published"  # the value of pretrained that means the weights stated by the model's config
OF_A_TEACHER = ("mean", "std")  # keys that one may have besides


def build_model(node: DictConfig, key: str = "model") -> Module:
    """Build the model at `key`, with random weights. Raises ConfigError if weights are named at a model within it."""
    own = make_node(remove_weights(resolve_config(node), key))
    check_memory(own, key)
    model: Module = build(own, key)
    return model


def check_memory(node: DictConfig, key: str) -> None:
    """Raise ConfigError for weights that cannot lie in this machine's memory, before it is filled."""
    with torch.device("meta"):
        model = build(node, key)
    needed = sum(tensor.nbytes for tensor in model.state_dict().values())
    if needed > physical_memory():
        raise ConfigError(
            f"{key} has {needed / GIB:,.0f} GiB of weights, and this machine {physical_memory() / GIB:,.0f} GiB of "
            f"memory; make data.image_size, data.num_classes or the sizes in {key} smaller"
        )


def remove_weights(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Copy the node of a model, and those of models within it, without the keys that are the run's."""
    left_out = (*OF_THE_RUN, *OF_A_TEACHER) if key == "teacher" else OF_THE_RUN
    own = {name: value for name, value in node.items() if name not in left_out}
    for name, value in own.items():
        if isinstance(value, dict) and "_target_" in value:
            if value.get("pretrained") is not None:
                raise ConfigError(
                    f"{key}.{name}.pretrained is not used; give weights for the whole model with {key}.pretrained"
                )
            own[name] = remove_weights(value, f"{key}.{name}")
    return own


def try_out(logits_of: Callable[[Tensor], Tensor], images: Tensor, num_classes: int, name: str) -> None:
    """Raise ConfigError unless it gives logits of so many classes for these images (B, C, H, W)."""
    try:
        found = tuple(logits_of(images).shape)
    except VitlabError:
        raise
    except Exception as error:  # whatever a model of another library raises
        reason = str(error).strip().split("\n")[0]
        raise ConfigError(f"{name} gives no logits for images of {format_sizes(images)}: {reason}") from error
    if found != (len(images), num_classes):
        raise ConfigError(
            f"{name} predicts {found[-1]} classes, but data.num_classes is {num_classes}; choose a model with as many "
            "classes"
        )


def format_sizes(images: Tensor) -> str:
    return "x".join(str(size) for size in images.shape[1:])


def try_pixels(model: Module, in_chans: int, image_size: int, num_classes: int) -> None:
    """Try a model that takes pixels, which may be of any library, on a blank image. Raises ConfigError."""
    training = model.training
    with torch.no_grad():
        try_out(model.eval(), torch.zeros(1, in_chans, image_size, image_size), num_classes, "the model")
    model.train(training)


def recompute_activations(model: Module) -> int:
    """Recompute the activations of blocks (activation_checkpointing=true); return how many. Raises ConfigError for a
    model that cannot."""
    try:
        return checkpoint_activations(model)
    except ValueError as error:
        raise ConfigError(f"activation_checkpointing: {error}") from error


def compile_model(model: Module, num_image_sizes: int, *, by_block: bool, mode: bool | str = True) -> None:
    """Compile in place, in a `mode` of torch.compile if one is named, so that names stay, and anew for each shape of a
    batch: with dynamic shapes the backward pass of resampled positions fails in torch 2.15. Training has one shape for
    each image size, validation and test have two each, with the smaller last batch. `by_block`: the blocks alone, each
    of which is then sharded, so that its weights change their place in memory, which CUDA graphs do not allow."""
    ignore_cached_kernels()
    parts = units(model) if by_block else [model]
    limit = len(parts) * (num_image_sizes + 4 + 4)  # blocks have one code, which counts for all of them
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, limit)
    options: dict[str, Any] = {"mode": f"{mode}-no-cudagraphs" if by_block else mode} if isinstance(mode, str) else {}
    for part in parts:
        part.compile(dynamic=False, **options)


def load_pretrained(
    model: Module, node: DictConfig, key: str = "model", vocabularies: Mapping[str, Any] | None = None
) -> Any:
    """Load the weights that the node at `key` names; return what became of every tensor, None without them.

    Raises CheckpointError when the source cannot be read or does not fit, also the `vocabularies` of the data.
    """
    name = find_weights(node, key)
    if name is None:
        return None
    from vitlab.weights import load

    head = bool(node.get("pretrained_head", True))  # models without classes do not have the key
    return load(model, name, partial=bool(node.pretrained_partial), head=head, vocabularies=vocabularies)


def find_weights(node: DictConfig, key: str = "model") -> str | None:
    """Name the weights that a model starts from; None for random ones. Raises ConfigError where published ones are
    asked for and none are known."""
    if node.get("pretrained") != PUBLISHED:
        return None if node.get("pretrained") is None else str(node.pretrained)
    if node.get("published") is None:
        raise ConfigError(
            f"{key}.pretrained={PUBLISHED}: no published weights of this model are known; give others, such as "
            "timm:NAME, "
            "hf:ORG/NAME or a file, or choose another model"
        )
    return str(node.published)
