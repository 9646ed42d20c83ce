"""Multiply in float8, with a scale for each tensor or row (Micikevicius et al., 2022, arXiv:2209.05433), by torchao.

A product takes half the time that it takes in bfloat16, and each of its tensors is read and cast before: wide layers
gain, narrow ones lose.
"""

from dataclasses import replace
from types import MethodType

import torch
from torch import Tensor, nn

from vitlab.config.refusals import get_first_line
from vitlab.distributed.fully_sharded import units
from vitlab.errors import ConfigError

ROWWISE = "rowwise"  # a scale for each row, which rounds less and needs wider layers
MULTIPLE = 16  # of which inputs and outputs are, for the kernels
CAPABILITY = (8, 9)  # from which on a GPU has such kernels: Ada, Hopper


def check_float8(
    model: nn.Module,
    device: torch.device,
    precision: str | int,
    kind: bool | str = True,
    is_compiled: bool | str = True,
) -> None:
    """Raise ConfigError where float8=true or rowwise cannot be done, would change nothing, or would be slower."""
    named = f"float8={str(kind).lower()}"
    if reason := obstacle(device):
        raise ConfigError(f"{named} {reason}")
    if precision != "bf16-mixed":
        raise ConfigError(f"{named} needs trainer.precision=bf16-mixed, not {precision}")
    if not is_compiled:
        raise ConfigError(f"{named} is slower than bfloat16 unless its casts are fused; set compile=true")
    if not wide_layers(model, kind):
        widest = max((width(layer) for layer in find_trainable_layers(model).values()), default=0)
        needed = "more than 2048 outputs and 1024 inputs" if kind == ROWWISE else "more than 1024 outputs"
        raise ConfigError(
            f"{named} would change nothing: in the blocks of {type(model).__name__} no layer that learns has "
            f"{needed}, in multiples of {MULTIPLE}; the widest has {widest}: set it to false"
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


def use_float8(model: nn.Module, kind: bool | str = True, *, emulated: bool = False) -> int:
    """Let the wide layers of the model's blocks multiply in float8 while they learn, forward and backward, in place;
    return how many layers. Weights, their names and what an evaluation computes stay as they are. `emulated`: rounded
    as float8 rounds, and multiplied in float32, on any device."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    wide = wide_layers(model, kind)
    recipe = Float8LinearConfig.from_recipe_name(ROWWISE if kind == ROWWISE else "tensorwise")
    config = replace(recipe, pad_inner_dim=True, emulate=emulated)  # tokens of a batch come in any number
    convert_to_float8_training(model, module_filter_fn=lambda module, name: name in wide, config=config)
    for name in wide:
        layer = model.get_submodule(name)
        layer.forward = MethodType(multiply, layer)  # bound: a deep copy of the layer runs the copy
    return len(wide)


def multiply(layer: nn.Linear, x: Tensor) -> Tensor:
    """Multiply as torchao does while the layer learns, and else as whoever loads the weights."""
    return type(layer).forward(layer, x) if layer.training else nn.Linear.forward(layer, x)


def wide_layers(model: nn.Module, kind: bool | str = True) -> dict[str, nn.Linear]:
    """Give the layers that gain from float8, by their names."""
    layers = find_trainable_layers(model).items()
    return {
        name: layer for name, layer in layers if width(layer) and gains(layer.in_features, layer.out_features, kind)
    }


def gains(inputs: int, outputs: int, kind: bool | str) -> bool:
    """Whether torchao finds a product of these sizes faster in float8 than in bfloat16 on an H100
    (`_auto_filter_for_recipe` in torchao 0.18)."""
    if kind == ROWWISE:
        return outputs > 2048 and inputs > 1024 and (outputs > 4096 or inputs > 2048)
    return inputs > 4096 or outputs > 1024


def find_trainable_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Give the linear layers of a model's blocks whose weights learn, by their names; head and patch embedding are none
    of them."""
    within = {module for block in units(model) for module in block.modules()}
    linear = {name: layer for name, layer in model.named_modules() if layer in within and type(layer) is nn.Linear}
    return {name: layer for name, layer in linear.items() if layer.weight.requires_grad}


def width(layer: nn.Linear) -> int:
    """Count a layer's outputs; 0 unless these and its inputs come in multiples of 16."""
    return 0 if layer.in_features % MULTIPLE or layer.out_features % MULTIPLE else layer.out_features


def format_capability(capability: tuple[int, int]) -> str:
    """Write a compute capability as it is known: 8.9."""
    return ".".join(map(str, capability))
