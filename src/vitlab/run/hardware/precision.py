"""The precision that a machine is good at.

A CPU's flags do not tell: by AVX512-BF16, bfloat16 was 1.6 to 3 times faster than float32 on two AMD machines, and 1.5
times slower on an Intel Xeon. So it is measured, once.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from vitlab.errors import ConfigError
from vitlab.measurements import Seconds, measure_once
from vitlab.run.hardware.block_timing import (
    FEW,
    BlockCall,
    ComputeMode,
    find_typical_block,
    least_seconds,
    set_products,
)

FLOAT32, BFLOAT16 = "32-true", "bf16-mixed"
PLAIN, ONEDNN = "none", "bf16"  # torch's names of the ways to multiply float32 matrices
GAIN = 0.9  # of the time, at most, that another way has to take to be chosen
MOST = 3e9  # operations of a forward pass that can be repeated often enough in seconds: S/16 has half of it, B/16 twice
TOKENS, WIDTH, BATCH = 197, 384, 8  # of the first layer in an MLP of S/16 at 224 pixels


class PrecisionChoice(NamedTuple):
    """A precision, and what was measured, in one line; None where nothing had to be."""

    precision: str
    measured: str | None


def find_precision(model: nn.Module, inputs: tuple[Any, ...], batch_size: int, device: torch.device) -> PrecisionChoice:
    """Find the precision in which a device trains a model soonest. A GPU that computes in bfloat16 uses it.

    On a CPU one block of the model is timed, forward and backward, with the run's own tokens and batch: the block that
    the model repeats (`typical_block`), whatever library it is of, such as a residual block of a ResNet. For a model
    that cannot be called on `inputs`, of `FEW` samples on the device "meta", and for blocks that take long, one linear
    layer stands in. bfloat16 is chosen where it saves a tenth of the time.
    """
    if device.type == "cuda":
        return PrecisionChoice(BFLOAT16 if torch.cuda.is_bf16_supported(including_emulation=False) else FLOAT32, None)
    if device.type != "cpu":
        return PrecisionChoice(FLOAT32, None)
    block, ways = find_typical_block(model, *inputs), {FLOAT32: ComputeMode(), BFLOAT16: ComputeMode(bf16=True)}
    is_quick = block is not None and block.operations <= MOST
    for call, size in ((block if is_quick else None, batch_size), (linear_layer(), BATCH)):
        if call is not None and (seconds := time_ways(call, size, ways)) is not None:
            ratio = seconds[BFLOAT16] / seconds[FLOAT32]
            measured = f"bfloat16 takes {ratio:.0%} of the time of float32, in {describe_call(call, size)}"
            return PrecisionChoice(BFLOAT16 if ratio <= GAIN else FLOAT32, measured)
    return PrecisionChoice(
        FLOAT32, "nothing: the machine is too busy to time a linear layer, and the run stays in float32"
    )


def linear_layer() -> BlockCall:
    """Give a layer that stands for much of what Transformers do."""
    layer, inputs = nn.Linear(WIDTH, 4 * WIDTH, device="meta"), torch.empty(FEW, TOKENS, WIDTH, device="meta")
    return BlockCall(layer, 2 * inputs.numel() * 4 * WIDTH, (inputs,), {})


def time_ways(call: BlockCall, batch_size: int, ways: Mapping[str, ComputeMode]) -> Seconds | None:
    """Give the seconds that a block takes in each of the `ways`: kept ones, where it was timed before."""
    parameters = sum(parameter.numel() for parameter in call.module.parameters())
    named = ", ".join(f"{name} with products '{way.products or set_products(None)}'" for name, way in ways.items())
    subject = f"{describe_call(call, batch_size)} of {parameters:,} parameters in {named}"
    return measure_once(subject, list(ways), lambda: least_seconds(call, batch_size, ways))


def describe_call(call: BlockCall, batch_size: int) -> str:
    """Name a block and the size of what it takes: a Block on 64 x 17 x 192."""
    shape = next(leaf.shape for leaf in tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Tensor))
    return f"a {type(call.module).__name__} on {' x '.join(map(str, (batch_size, *shape[1:])))}"


def speed_up_float32_products(device: torch.device) -> bool:
    """Let a CPU multiply float32 matrices oneDNN's way where that is as exact as the plain one, and saves a tenth of
    the time. For another device nothing changes.

    On some CPUs with AVX512-BF16 it is twice as fast at the same accuracy; others round to bfloat16, so that one
    product is compared first, to 1e-5 of its largest value. The products of one linear layer are timed, once for a
    machine, so that all commands and every start of a run multiply alike. Returns whether it is on.
    """
    if device.type != "cpu" or not are_exact():
        return False
    seconds = time_ways(
        linear_layer(), BATCH, {PLAIN: ComputeMode(products=PLAIN), ONEDNN: ComputeMode(products=ONEDNN)}
    )
    is_faster = seconds is not None and seconds[ONEDNN] <= GAIN * seconds[PLAIN]
    set_products(ONEDNN if is_faster else PLAIN)
    return is_faster


def are_exact() -> bool:
    """Whether torch knows oneDNN's way for products of float32 matrices, and rounds to no less than float32 in it."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, generator=generator) for size in ((256, 512), (512, 256)))
    exact, before = a.double() @ b.double(), set_products(ONEDNN)
    error = ((a @ b).double() - exact).abs().max() / exact.abs().max()
    set_products(before)
    return before is not None and error.item() <= 1e-5


def restore_float32_products() -> None:
    """Undo `speed_up_float32_products`: with it, Lightning cannot ask torch for the precision of a GPU's products; and
    tf32=true."""
    if set_products(None) == ONEDNN:
        set_products(PLAIN)
    if torch.get_float32_matmul_precision() != "highest":
        torch.set_float32_matmul_precision("highest")


def is_bf16(precision: str) -> bool:
    """Whether a precision for use without training is bfloat16. Raises ConfigError for one that is neither that nor
    float32."""
    known = {FLOAT32: False, BFLOAT16: True}
    if precision not in known:
        raise ConfigError(f"precision '{precision}' is not one of: {', '.join(known)}")
    return known[precision]
