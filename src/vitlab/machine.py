"""What this machine has."""

import os
import sys
from typing import Any


def physical_memory() -> int:
    """Bytes of it; without bound where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


def cpu_capabilities() -> dict[str, Any]:
    """What torch knows of the processor; nothing in a torch that does not tell."""
    import torch

    return dict(torch.cpu.get_capabilities()) if hasattr(torch.cpu, "get_capabilities") else {}


def fastest_device() -> Any:
    """The torch.device that computes soonest: a GPU where there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
