"""The precision that a machine is good at."""


def hardware_precision(accelerator: str) -> str:
    """bf16-mixed where the hardware computes in bfloat16 (Ampere and later GPUs, CPUs with AVX512-BF16 or AMX), else
    32-true. `accelerator` as Lightning names it: auto, cpu, gpu …"""
    import torch

    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    if accelerator in ("auto", "cpu"):
        capabilities = torch.cpu.get_capabilities()
        if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"):
            return "bf16-mixed"
    return "32-true"
