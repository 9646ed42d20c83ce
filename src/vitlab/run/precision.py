"""The precision that a machine is good at."""

from typing import TYPE_CHECKING, Any

from vitlab.errors import ConfigError

if TYPE_CHECKING:
    import torch


def cpu_capabilities() -> dict[str, Any]:
    """What torch knows of the processor; nothing in a torch that does not tell."""
    import torch

    return dict(torch.cpu.get_capabilities()) if hasattr(torch.cpu, "get_capabilities") else {}


def hardware_precision(accelerator: str) -> str:
    """bf16-mixed where the hardware computes in bfloat16 (Ampere and later GPUs, CPUs with AVX512-BF16 or AMX), else
    32-true. `accelerator` as Lightning names it: auto, cpu, gpu …"""
    import torch

    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    if accelerator in ("auto", "cpu"):
        capabilities = cpu_capabilities()
        if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"):
            return "bf16-mixed"
    return "32-true"


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
    """Whether a precision without training is bfloat16. Raises ConfigError for one that is none of both."""
    known = {"32-true": False, "bf16-mixed": True}
    if precision not in known:
        raise ConfigError(f"precision '{precision}' is not one of: {', '.join(known)}")
    return known[precision]
