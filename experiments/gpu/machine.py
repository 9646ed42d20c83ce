"""The machine: its versions, its GPU, how fast that multiplies, and which attention kernels it has."""

import platform
import time
from importlib.metadata import PackageNotFoundError, version

import torch
from attention import KERNELS, milliseconds
from step import Assignment, Found

from vitlab.run.storage.provenance import device_name, versions

ALSO = ("triton", "timm", "transformers", "vit-pytorch", "omegaconf")


def describe(given: Assignment) -> Found:
    scale = given.scale
    found = versions() | {package: installed(package) for package in ALSO}
    figures = {"device": device_name(), "system": platform.platform(), "versions": found}
    if scale.device == "cuda":
        card = torch.cuda.get_device_properties(0)
        figures |= {"memory_gib": card.total_memory / 2**30, "capability": f"{card.major}.{card.minor}"}
        found |= {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}
        found |= {"nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    figures["attention"] = {name: available(kernel, scale.device) for name, kernel in KERNELS.items()}
    figures["tflops"] = product_rate(scale.device, 8192 if scale.device == "cuda" else 256) / 1e12
    kernels = ", ".join(name for name, there in figures["attention"].items() if there)
    assert figures["attention"]["math"], "not even the plain attention works"
    figure = f"{figures['device']}, torch {torch.__version__}, attention: {kernels}, "
    return Found(figure + f"{figures['tflops']:.0f} TFLOP/s in a bf16 product", figures)


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def available(kernel: object, device: str) -> bool:
    try:
        milliseconds({"it": kernel}, (2, 2, 64, 64), torch.bfloat16, device, rounds=1)
    except RuntimeError as error:
        print(error)
        return False
    return True


def product_rate(device: str, size: int, rounds: int = 20) -> float:
    """Operations a second, of the best of some large products in bfloat16."""
    a, b = torch.randn(2, size, size, device=device).bfloat16()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
