"""What the device does in a few training steps of a run: how many kernels, how long it is idle, what waits for it."""

import collections
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from program import before_each, for_steps, train, waves
from step import Assignment, Found
from torch.profiler import ProfilerActivity, profile

from vitlab.tasks import Classification

STEPS = 5
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")  # of the device, the profiler waits itself
GAP = 20  # µs without a kernel that are worth telling
SHOWN = 12  # kernels in the table


def record(given: Assignment) -> Found:
    scale = given.scale
    on_gpu = scale.device == "cuda"
    profiler = profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu)
    first = scale.log_every + 1  # what is seen lies between two logs
    end = first + min(STEPS, scale.log_every - 1)
    calls = [0]

    def watch() -> None:
        calls[0] += 1
        if calls[0] == first:
            profiler.start()
        elif calls[0] == end:
            profiler.stop()

    options = [*scale.model, "data.cache.kind=device", "callbacks=[default,ema]", *for_steps(end)]
    with before_each(Classification, "training_step", watch):
        train(given.folder / "run", waves(scale, given.folder, *options))
    path = given.folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    with open(path, "rb") as trace, gzip.open(given.kept / "trace.json.gz", "wb") as packed:
        shutil.copyfileobj(trace, packed)
    figures, lines = summarized(path, end - first, ("kernel", "gpu_memcpy", "gpu_memset") if on_gpu else ("cpu_op",))
    figure = "{kernels:.0f} kernels a step, busy {busy_ms:.1f} of {ms:.1f} ms, {gaps:.0f} gaps, {waits:.1f} waits"
    return Found(figure.format(**figures), figures, tuple(lines))


def summarized(path: Path, steps: int, kinds: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """Figures of one step, and a table of what took longest."""
    with open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    work = sorted((event["ts"], event["ts"] + event["dur"], event["name"]) for event in events if event["cat"] in kinds)
    assert work, "the profiler saw no work on the device"
    busy, gaps, reached = 0.0, [], work[0][0]
    for start, end, _ in work:
        if start > reached:
            gaps.append(start - reached)
        busy += max(end - max(start, reached), 0)
        reached = max(reached, end)
    figures = {
        "kernels": len(work) / steps,
        "ms": (reached - work[0][0]) / 1000 / steps,
        "busy_ms": busy / 1000 / steps,
        "gaps": sum(gap > GAP for gap in gaps) / steps,
        "gap_ms": sum(gaps) / 1000 / steps,
        "waits": sum(event["name"] in WAITS for event in events) / steps,
    }
    times: dict[str, list[float]] = collections.defaultdict(list)
    for start, end, name in work:
        times[name].append(end - start)
    lines = ["| kernel | times a step | ms a step |", "|---|---|---|"]
    for name in sorted(times, key=lambda name: -sum(times[name]))[:SHOWN]:
        shown = name.replace("|", "/")[:100]
        lines.append(f"| `{shown}` | {len(times[name]) / steps:.1f} | {sum(times[name]) / 1000 / steps:.2f} |")
    return figures, lines
