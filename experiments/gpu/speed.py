"""The benchmarks of experiments/benchmarks that say most on a GPU."""

import statistics

import torch
from attention import KERNELS, WAYS, milliseconds
from step import Assignment, Found
from training_step import Flags, Row, measure, table


def attention_kernels(given: Assignment) -> Found:
    """Forward and backward by each kernel of torch's, by the one it chooses, and by the equations."""
    scale = given.scale
    ways = {"torch's choice": WAYS["fused"], **KERNELS, "written": WAYS["written"]}
    found: dict[str, float | None] = {}
    for way, product in ways.items():
        try:
            found |= milliseconds({way: product}, scale.attention, torch.bfloat16, scale.device, scale.rounds)
        except RuntimeError as error:  # no such kernel here
            print(f"{way}: {error}")
            found[way] = None
    there = {way: ms for way, ms in found.items() if ms is not None}
    best = min(there, key=there.__getitem__)
    shape = ", ".join(map(str, scale.attention))
    lines = [f"Batch, heads, tokens, width {shape}, bfloat16, forward and backward.", "", "| way | ms |", "|---|---|"]
    lines += [f"| {way} | {'none' if ms is None else f'{ms:.2f}'} |" for way, ms in found.items()]
    figure = f"{best} is fastest: {there[best]:.2f} ms; torch's choice {there[next(iter(ways))]:.2f} ms"
    return Found(figure, {"milliseconds": found}, tuple(lines))


def beside_timm(given: Assignment) -> Found:
    """A step of ours and of timm's, both compiled."""
    scale = given.scale
    row, flags = Row(*scale.benchmark), Flags(bf16=True, fused=True, compiled=True)
    times = measure(row.preset, row, {"ours": flags, "peers": flags}, scale.rounds, scale.device, ["timm"])
    median = {name: 1000 * statistics.median(seconds) for name, seconds in times.items()}
    ratio = median["ours"] / median["timm"]
    figure = f"ours {median['ours']:.1f} ms, timm {median['timm']:.1f} ms, {ratio:.3f} of it"
    lines = ("| ours, ms | timm, ms | ours / timm |", "|---|---|---|", f"| {table(times)} |")
    return Found(figure, {"milliseconds": median, "ratio": ratio}, lines)
