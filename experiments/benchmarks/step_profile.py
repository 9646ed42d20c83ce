"""Where the time of a training step goes: B/16, batch 8, bf16 autocast, on a CPU.

    python experiments/benchmarks/step_profile.py [--batch 8] [--out step_profile.md]

The rate that this machine reaches in one large product of matrices is measured in the same run; what the products of
the step take is compared with it.
"""

import argparse
import datetime
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from training_step import CPU_ROWS, Flags, Step, ours

from vitlab.counting import multiply_accumulates
from vitlab.machine import cpu_capabilities

STEPS = 5
KINDS = {
    "products of matrices": ("aten::mm", "aten::addmm", "aten::bmm"),
    "copies and casts": ("aten::copy_", "aten::cat"),
    "softmax, GELU, norms": ("softmax", "gelu", "layer_norm"),
}


def matrix_rate() -> float:
    """Multiply-accumulates a second in bfloat16, of the product that the MLP of B/16 takes for 8 images."""
    a, b = torch.randn(8 * 197, 768).bfloat16(), torch.randn(768, 3072).bfloat16()
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return a.shape[0] * 768 * 3072 / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    row = replace(next(row for row in CPU_ROWS.values() if row.preset == "vit_b16"), batch=arguments.batch)
    model = ours(row)
    operations = 3 * row.batch * multiply_accumulates(model, (3, 224, 224))  # forward, and twice that backward
    step = Step(model, row, Flags(bf16=True, fused=True), "cpu")
    for _ in range(3):
        step()
    rate = matrix_rate()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            step()
    events = {event.key: event.self_cpu_time_total / 1e6 / STEPS for event in profiler.key_averages()}
    whole = sum(events.values())
    shares = {}
    for kind, names in KINDS.items():
        exact = kind != "softmax, GELU, norms"
        shares[kind] = sum(s for key, s in events.items() if (key in names if exact else any(n in key for n in names)))
    shares["AdamW, fused"] = sum(s for key, s in events.items() if "fused_adam" in key)
    shares["the rest"] = whole - sum(shares.values())
    products = shares["products of matrices"]
    lines = [
        f"{datetime.date.today()}, {cpu_capabilities().get('cpu_name', 'CPU')}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}.\n",
        f"A step of B/16, batch {row.batch}, bf16: {1000 * whole:.0f} ms, {operations / 1e9:.0f} billion "
        "multiply-accumulates.",
        f"Multiply-accumulates in a second: one large matrix product {rate / 1e9:.0f} billion; the matrix products of "
        f"the step {operations / products / 1e9:.0f} billion ({operations / products / rate:.0%});",
        f"the whole step {operations / whole / 1e9:.0f} billion ({operations / whole / rate:.0%}).\n",
        "| part | ms | share |",
        "|---|---|---|",
        *(f"| {kind} | {1000 * seconds:.0f} | {seconds / whole:.0%} |" for kind, seconds in shares.items()),
    ]
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
