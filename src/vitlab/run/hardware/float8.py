"""Multiply in float8, with a scale for each tensor (Micikevicius et al., 2022, arXiv:2209.05433), by torchao.

A product takes half the time that it takes in bfloat16, and each of its tensors is read and cast before: wide layers
gain, narrow ones lose.
"""

from types import MethodType

import torch
from torch import Tensor, nn

from vitlab.config.refusals import get_first_line
from vitlab.distributed.fully_sharded import units
from vitlab.errors import ConfigError

LEAST = 1024  # inputs, and outputs, of a layer: about where torchao finds a gain on an H100
MULTIPLE = 16  # of which both are, for the kernels
CAPABILITY = (8, 9)  # from which on a GPU has such kernels: Ada, Hopper


def check_float8(model: nn.Module, device: torch.device, precision: str | int) -> None:
    """Raise ConfigError where float8=true cannot be done, or would change nothing."""
    if reason := obstacle(device):
        raise ConfigError(f"float8=true {reason}")
    if precision != "bf16-mixed":
        raise ConfigError(f"float8=true needs trainer.precision=bf16-mixed, not {precision}")
    if not wide_layers(model):
        widest = max((width(layer) for layer in find_trainable_layers(model).values()), default=0)
        raise ConfigError(
            f"float8=true would change nothing: in the blocks of {type(model).__name__} no layer that learns has "
            f"{LEAST} inputs and outputs or more, in multiples of {MULTIPLE}; the widest has {widest}: set it to false"
        )


def obstacle(device: torch.device) -> str | None:
    """Say why a device, or what is installed, has no products in float8; None where it has."""
    needed = f"needs a CUDA device of compute capability {format_capability(CAPABILITY)} or more"
    if device.type != "cuda":
        return f"{needed}, and the run is on {device.type}; set it to false"
    if (found := torch.cuda.get_device_capability(device)) < CAPABILITY:
        return f"{needed}, and {torch.cuda.get_device_name(device)} has {format_capability(found)}; set it to false"
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: F401 - as `use_float8` does
    except ImportError as error:
        return f"needs torchao: pip install 'vitlab[float8]' ({get_first_line(error)})"
    return None


def use_float8(model: nn.Module, *, emulated: bool = False) -> int:
    """Let the wide layers of the model's blocks multiply in float8 while they learn, forward and backward, in place;
    return how many layers. Weights, their names and what an evaluation computes stay as they are. `emulated`: rounded
    as float8 rounds, and multiplied in float32, on any device."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    wide = wide_layers(model)
    config = Float8LinearConfig(pad_inner_dim=True, emulate=emulated)  # tokens of a batch come in any number
    convert_to_float8_training(model, module_filter_fn=lambda module, name: name in wide, config=config)
    for name in wide:
        layer = model.get_submodule(name)
        layer.forward = MethodType(multiply, layer)  # bound: a deep copy of the layer runs the copy
    return len(wide)


def multiply(layer: nn.Linear, x: Tensor) -> Tensor:
    """Multiply as torchao does while the layer learns, and else as whoever loads the weights."""
    return type(layer).forward(layer, x) if layer.training else nn.Linear.forward(layer, x)


def wide_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Give the layers that gain from float8, by their names."""
    return {name: layer for name, layer in find_trainable_layers(model).items() if width(layer) >= LEAST}


def find_trainable_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Give the linear layers of a model's blocks whose weights learn, by their names; head and patch embedding are none
    of them."""
    within = {module for block in units(model) for module in block.modules()}
    linear = {name: layer for name, layer in model.named_modules() if layer in within and type(layer) is nn.Linear}
    return {name: layer for name, layer in linear.items() if layer.weight.requires_grad}


def width(layer: nn.Linear) -> int:
    """Count inputs or outputs, whichever are fewer; 0 unless both come in multiples of 16."""
    sizes = (layer.in_features, layer.out_features)
    return 0 if any(size % MULTIPLE for size in sizes) else min(sizes)


def format_capability(capability: tuple[int, int]) -> str:
    """Write a compute capability as it is known: 8.9."""
    return ".".join(map(str, capability))
