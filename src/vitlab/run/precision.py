"""The precision that a machine is good at."""

from typing import TYPE_CHECKING, Any

from vitlab.errors import ConfigError
from vitlab.machine import cpu_capabilities

if TYPE_CHECKING:
    import torch


def speed_up_float32_products(device: "torch.device") -> bool:
    """Let a CPU multiply float32 matrices oneDNN's way, where that is as exact as the plain one. For another device
    nothing changes.

    On CPUs with AVX512-BF16 it is twice as fast at the same accuracy; others may really round to bfloat16, so that one
    product is compared first, to 1e-5 of its largest value. Returns whether it is on; off where torch knows no such
    way.
    """
    import torch

    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if device.type != "cpu" or not hasattr(matmul, "fp32_precision") or not cpu_capabilities().get("avx512_bf16"):
        return False
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, generator=generator) for size in ((256, 512), (512, 256)))
    before, exact = matmul.fp32_precision, a.double() @ b.double()
    matmul.fp32_precision = "bf16"
    error = ((a @ b).double() - exact).abs().max() / exact.abs().max()
    if error > 1e-5:
        matmul.fp32_precision = before
        return False
    return True


def plain_float32_products() -> None:
    """Undo `speed_up_float32_products`: with it, Lightning cannot ask torch for the precision of a GPU's products."""
    import torch

    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if getattr(matmul, "fp32_precision", None) == "bf16":
        matmul.fp32_precision = "none"


def is_bf16(precision: str) -> bool:
    """Whether a precision for use without training is bfloat16. Raises ConfigError for one that is neither that nor
    float32."""
    known = {"32-true": False, "bf16-mixed": True}
    if precision not in known:
        raise ConfigError(f"precision '{precision}' is not one of: {', '.join(known)}")
    return known[precision]
