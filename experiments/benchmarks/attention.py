"""torch's fused attention beside the equations one by one, on this machine.

    python experiments/benchmarks/attention.py [--rounds 15] [--batch N] [--out attention.md]

Forward and backward (training) or forward alone (inference) of softmax(QKᵀ/√d)V for Q, K and V out of one projection,
as in a block; the two ways in turn, in one process. vitlab.layers.attention.is_written_faster states the outcome.
"""

import argparse
import datetime
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitlab.layers import PRODUCTS
from vitlab.machine import cpu_capabilities

SHAPES = (
    (64, 3, 17, 64),
    (64, 3, 65, 64),
    (16, 3, 197, 64),
    (8, 12, 197, 64),
    (8, 6, 257, 64),
    (4, 12, 577, 64),
    (2, 12, 1024, 64),
)
MODES = {
    "float32": (torch.float32, "none"),
    "float32 through oneDNN": (torch.float32, "bf16"),
    "bf16": (torch.bfloat16, "none"),
}


Product = Callable[..., Tensor]
WAYS: dict[str, Product] = {way: PRODUCTS[way] for way in ("fused", "written")}


def through(backend: SDPBackend) -> Product:
    """torch's attention by one of its kernels."""

    def product(*inputs: object) -> Tensor:
        with sdpa_kernel(backend):
            return PRODUCTS["fused"](*inputs)

    return product


KERNELS = {
    "flash": through(SDPBackend.FLASH_ATTENTION),
    "cuDNN": through(SDPBackend.CUDNN_ATTENTION),
    "memory-efficient": through(SDPBackend.EFFICIENT_ATTENTION),
    "math": through(SDPBackend.MATH),
}


def once(product: Product, qkv: Tensor, heads: int, gradient: Tensor | None) -> float:
    """Seconds."""
    start = time.perf_counter()
    q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    with torch.autocast(qkv.device.type, torch.bfloat16, enabled=qkv.dtype == torch.bfloat16):
        out = product(q, k, v, None, 0.0, False).transpose(1, 2).flatten(2)
    if gradient is not None:
        torch.autograd.grad(out, qkv, gradient.to(out.dtype))
    if qkv.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def milliseconds(
    ways: Mapping[str, Product],
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    device: str,
    rounds: int,
    training: bool = True,
) -> dict[str, float]:
    """The median of each way, measured in turn, for (batch, heads, tokens, width)."""
    B, heads, N, d = shape
    qkv = torch.randn(B, N, 3 * heads * d, dtype=dtype, device=device, requires_grad=training)
    gradient = torch.randn(B, N, heads * d, dtype=dtype, device=device) if training else None
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 2):
        for way, seconds in times.items():
            seconds.append(once(ways[way], qkv, heads, gradient))
    return {way: 1000 * statistics.median(seconds[2:]) for way, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, help="in place of that of each shape")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else cpu_capabilities().get("cpu_name", "CPU")
    print(
        head := f"{datetime.date.today()}, {machine}, {torch.get_num_threads()} threads, torch {torch.__version__}.\n"
    )
    lines = [head, "| batch, heads, tokens, width | precision | use | fused, ms | written, ms | written / fused |"]
    lines.append("|---|---|---|---|---|---|")
    print("\n".join(lines[1:]))
    for precision, (dtype, products) in MODES.items():
        if device == "cpu":
            torch.backends.mkldnn.matmul.fp32_precision = products
        elif products != "none":
            continue
        for batch, *sizes in SHAPES:
            shape = (arguments.batch or batch, *sizes)
            for training in (True, False):
                fused, written = milliseconds(WAYS, shape, dtype, device, arguments.rounds, training).values()
                use = "training" if training else "inference"
                cells = f"{fused:.2f} | {written:.2f} | {written / fused:.2f}"
                lines.append(f"| {', '.join(map(str, shape))} | {precision} | {use} | {cells} |")
                print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
