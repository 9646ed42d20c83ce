"""ViT presets in int8 by ONNX Runtime, beside float32 of timm, of ours and of ONNX Runtime, on this machine's CPU.

    python experiments/benchmarks/int8.py [--rounds 4] [--threads 1 2] [--out int8.md]

Needs vitlab[onnx,timm]. The weights are random: latency and size do not depend on them, but accuracy and agreement of
classes do, and only mean something for trained weights: python src/compress.py measures these for a run. Each model
and number of threads has its own process, in which all ways have their turns.
"""

import argparse
import datetime
import importlib.metadata
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import timm
import torch
from hydra import compose, initialize_config_dir

from vitlab.bundles.formats import open_onnx, write_onnx
from vitlab.bundles.graph import Graph
from vitlab.compression.candidates import count_bytes
from vitlab.compression.latency import measure_latency
from vitlab.compression.quantization import quantize_dynamic
from vitlab.compression.token_merging import TokenMerging
from vitlab.config.home import CONF
from vitlab.machine import cpu_capabilities
from vitlab.run.building.model import build_model

MODELS = {"vit_ti16": "vit_tiny_patch16_224", "vit_s16": "vit_small_patch16_224", "vit_b16": "vit_base_patch16_224"}
BATCHES = (1, 8)
MERGED = 13  # patches that each block merges in the last row, of 196
FIRST = "timm, float32"


def build(preset: str) -> torch.nn.Module:
    data = ["data=imagenet", "data.image_size=224"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("train", overrides=[f"model={preset}", *data])
    return build_model(cfg.model).eval()


def write(model: torch.nn.Module, path: Path) -> Path:
    """An ONNX file that takes any number of images."""
    images = torch.randn(2, 3, 224, 224)
    write_onnx(Graph("the model", model, {"pixels": images}, ["logits"], {"pixels": {0: "batch"}}), path)
    return path


def ways(preset: str, threads: int, folder: Path) -> tuple[dict, dict]:
    """What runs images, and the bytes of its weights, by name."""
    own, theirs = build(preset), timm.create_model(MODELS[preset], pretrained=False).eval()
    plain, merged = write(own, folder / "plain.onnx"), write(TokenMerging(own, MERGED), folder / "merged.onnx")
    files = {"ONNX Runtime, float32": plain}
    for name, source in {"int8 dynamic": plain, f"int8 dynamic, r={MERGED}": merged}.items():
        files[f"ONNX Runtime, {name}"] = folder / f"{name}.onnx"
        quantize_dynamic(source, files[f"ONNX Runtime, {name}"])
    opened = {name: open_onnx(path, threads) for name, path in files.items()}
    runs = {FIRST: theirs, "ours, float32": own} | {
        name: partial(lambda run, images: run({"pixels": images})["logits"], run) for name, run in opened.items()
    }
    sizes = {FIRST: count_bytes(theirs), "ours, float32": count_bytes(own)}
    return runs, sizes | {name: path.stat().st_size for name, path in files.items()}


def rows(preset: str, threads: int, rounds: int) -> list[str]:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        runs, sizes = ways(preset, threads, Path(folder))
        images = torch.randn(10 * rounds, 3, 224, 224)
        taken = {}
        for size in BATCHES:
            *_, taken[size] = measure_latency(runs, images, size)
    lines = []
    for name in runs:
        cells = [f"{taken[B][name].p50:.1f} ({taken[B][name].p95:.1f})" for B in BATCHES]
        ratios = [f"{taken[B][FIRST].p50 / taken[B][name].p50:.2f}" for B in BATCHES]
        each = " | ".join(f"{cell} | {ratio}" for cell, ratio in zip(cells, ratios, strict=True))
        lines.append(f"| {preset} | {threads} | {name} | {sizes[name] / 1e6:.1f} | {each} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="tens of images that are timed")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--alone", action="store_true", help="one model and number of threads, rows only")
    arguments = parser.parse_args()
    if arguments.alone:
        print("\n".join(rows(arguments.models[0], arguments.threads[0], arguments.rounds)))
        return
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "onnxruntime", "timm"))
    flags = [name for name in ("avx512_vnni", "avx_vnni", "amx_int8") if cpu_capabilities().get(name)]
    machine = f"{cpu_capabilities().get('cpu_name', 'CPU')} ({', '.join(flags)})"
    lines = [
        f"{datetime.date.today()}, {machine}, {versions}. Images of 224 pixels,",
        f"{10 * arguments.rounds} of them for each way, in turns. Milliseconds: median (95 % are faster). ×: how",
        "many times as fast as timm's eager float32, by medians. MB: the file, or the weights in memory.",
        "",
        "The weights are random. Latency and size do not depend on them; agreement of classes with float32 only means",
        "something for trained weights, and `python src/compress.py` measures it for a run.",
        "",
        "| model | threads | | MB | ms, batch 1 | × | ms, batch 8 | × |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset in arguments.models:
        for threads in arguments.threads:
            words = ["--alone", "--models", preset, "--threads", str(threads), "--rounds", str(arguments.rounds)]
            done = subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True)
            lines += [line for line in done.stdout.splitlines() if line.startswith("| vit")]
            print(lines[-1], flush=True)
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
