"""Time of a training step of our ViT beside those of timm, Hugging Face, torchvision and vit-pytorch.

    python experiments/benchmarks/training_step.py [--rounds 15] [--rows Ti/16,B/16,CIFAR] [--peers timm,…] [--batch N]
        [--out FILE]

One process, all models in memory, one step of each in turn, in an order that rotates from round to round: what disturbs
the machine disturbs all. Forward, backward and AdamW on one fixed batch of images. Two tables: the same flags for all
(float32, and bf16 autocast), and out of the box: what `python src/train.py` does on this machine against each peer in a
plain float32 loop. Every model must learn the batch: losses are finite and fall.
"""

import argparse
import datetime
import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from torch import Tensor, nn

from vitlab.config.home import CONF
from vitlab.machine import cpu_capabilities
from vitlab.run.building.model import build_model
from vitlab.run.hardware.block_timing import FEW
from vitlab.run.hardware.precision import BFLOAT16, find_precision, speed_up_float32_products


@dataclass(frozen=True)
class Row:
    """Sizes of one comparison."""

    preset: str
    image_size: int
    patch_size: int
    dim: int
    heads: int
    batch: int
    classes: int
    depth: int = 12


CPU_ROWS = {
    "Ti/16, 224 px, batch 16": Row("vit_ti16", 224, 16, 192, 3, 16, 1000),
    "B/16, 224 px, batch 8": Row("vit_b16", 224, 16, 768, 12, 8, 1000),
    "CIFAR: Ti/4, 32 px, 65 tokens, batch 64": Row("vit_ti4", 32, 4, 192, 3, 64, 10),
}
GPU_ROWS = {
    "Ti/16, 224 px, batch 256": Row("vit_ti16", 224, 16, 192, 3, 256, 1000),
    "B/16, 224 px, batch 256": Row("vit_b16", 224, 16, 768, 12, 256, 1000),
    "CIFAR: Ti/4, 32 px, 65 tokens, batch 256": Row("vit_ti4", 32, 4, 192, 3, 256, 10),
}


class Logits(nn.Module):
    """Hugging Face's output as a tensor."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits


def ours(row: Row) -> nn.Module:
    sizes = [f"data.image_size={row.image_size}", f"data.num_classes={row.classes}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return build_model(compose("train", [f"model={row.preset}", "data=synthetic", *sizes]).model)


# -- the peers, each imported when it is wanted


def timm(row: Row) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        row.image_size,
        row.patch_size,
        embed_dim=row.dim,
        depth=row.depth,
        num_heads=row.heads,
        num_classes=row.classes,
    )


def hugging_face(row: Row) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=row.dim,
        num_hidden_layers=row.depth,
        num_attention_heads=row.heads,
        intermediate_size=4 * row.dim,
        image_size=row.image_size,
        patch_size=row.patch_size,
        num_labels=row.classes,
        attn_implementation="sdpa",
    )
    return Logits(ViTForImageClassification(config))


def torchvision(row: Row) -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        row.image_size, row.patch_size, row.depth, row.heads, row.dim, 4 * row.dim, num_classes=row.classes
    )


def vit_pytorch(row: Row) -> nn.Module:
    from vit_pytorch import ViT

    return ViT(
        image_size=row.image_size,
        patch_size=row.patch_size,
        num_classes=row.classes,
        dim=row.dim,
        depth=row.depth,
        heads=row.heads,
        mlp_dim=4 * row.dim,
        dim_head=row.dim // row.heads,
    )


PEERS: dict[str, Callable[[Row], nn.Module]] = {
    "timm": timm,
    "Hugging Face": hugging_face,
    "torchvision": torchvision,
    "vit-pytorch": vit_pytorch,
}


@dataclass
class Flags:
    """How a step is computed."""

    bf16: bool = False
    fused: bool = False  # the optimizer
    fast_float32: bool = False  # products through oneDNN
    compiled: bool = False


def defaults(model: nn.Module, row: Row, device: str) -> Flags:
    """What `python src/train.py` finds for this model on this machine."""
    inputs = (torch.empty(FEW, 3, row.image_size, row.image_size, device="meta"),)
    fast_float32 = speed_up_float32_products(torch.device(device))
    bf16 = find_precision(model, inputs, row.batch, torch.device(device)).precision == BFLOAT16
    return Flags(bf16=bf16, fused=True, fast_float32=fast_float32 and not bf16)


class Step:
    """A training step of one model, on a fixed batch."""

    def __init__(self, model: nn.Module, row: Row, flags: Flags, device: str):
        torch.manual_seed(0)
        self.model, self.flags, self.device = model.to(device).train(), flags, device
        if flags.compiled:
            self.model.compile()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True if flags.fused else None)
        self.images = torch.randn(row.batch, 3, row.image_size, row.image_size, device=device)
        self.classes = torch.arange(row.batch, device=device) % row.classes
        self.losses: list[float] = []

    def __call__(self) -> float:
        """Seconds that one step took."""
        if self.device == "cpu":
            torch.backends.mkldnn.matmul.fp32_precision = "bf16" if self.flags.fast_float32 else "none"
        synchronize(self.device)
        start = time.perf_counter()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.flags.bf16):
            loss = F.cross_entropy(self.model(self.images), self.classes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        synchronize(self.device)
        seconds = time.perf_counter() - start
        self.losses.append(loss.item())
        return seconds

    def check(self, name: str) -> None:
        assert all(loss == loss and abs(loss) != float("inf") for loss in self.losses), f"{name}: loss not finite"
        assert self.losses[-1] < self.losses[0], f"{name}: loss does not fall: {self.losses[0]} -> {self.losses[-1]}"


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def alternate(steps: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, one of each in every round, after two rounds to warm up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(rounds + 2):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds = steps[name]()
            if number >= 2:
                times[name].append(seconds)
    return times


def table(times: dict[str, list[float]]) -> str:
    """A line of the report: median milliseconds of each, and ours over the best peer: the ratio of the medians, and the
    median and quartiles of the ratios within each round."""
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    best = min((name for name in median if name != "ours"), key=median.__getitem__)
    ratios = sorted(a / b for a, b in zip(times["ours"], times[best], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    cells = [f"{1000 * seconds:.1f}" for seconds in median.values()]
    spread = f"{median['ours'] / median[best]:.3f} ({middle:.3f}; {low:.3f} to {high:.3f})"
    return " | ".join([*cells, f"{spread} {best}"])


def measure(
    name: str, row: Row, flags: dict[str, Flags | None], rounds: int, device: str, peers: Iterable[str]
) -> dict[str, list[float]]:
    """Seconds of our steps and of those of `peers`. `flags`: those of ours, and those of the peers; None: the
    defaults of a run."""
    models = {"ours": ours(row), **{peer: PEERS[peer](row) for peer in peers}}
    own = {n: flags["ours" if n == "ours" else "peers"] or defaults(m, row, device) for n, m in models.items()}
    steps = {n: Step(m, row, own[n], device) for n, m in models.items()}
    times = alternate(steps, rounds)
    for label, step in steps.items():
        step.check(f"{name}, {label}")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", default="", help="beginnings of row names, with commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="with commas")
    parser.add_argument("--batch", type=int, help="in place of that of each row")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = {
        name: replace(row, batch=arguments.batch or row.batch)
        for name, row in (GPU_ROWS if device == "cuda" else CPU_ROWS).items()
        if name.startswith(tuple(arguments.rows.split(",")))
    }
    machine = torch.cuda.get_device_name() if device == "cuda" else cpu_capabilities().get("cpu_name", "CPU")
    peers = arguments.peers.split(",")
    packages = ["torch", *("transformers" if peer == "Hugging Face" else peer for peer in peers)]
    libraries = {package: importlib.metadata.version(package) for package in packages}
    lines = [
        f"{datetime.date.today()}, {machine}, {torch.get_num_threads()} threads, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version}" for name, version in libraries.items())
        + f", {arguments.rounds} rounds.",
        "The table shows the median milliseconds of a step. The last column divides ours by the best peer: of the",
        "medians, then in brackets the median and the quartiles of the ratios within each round.",
    ]
    header = ["row", "flags", "ours", *peers, "ours / best peer"]
    rule = "|".join(["---"] * len(header))

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    for title, settings in tables(device).items():
        say(f"\n### {title}\n\n| {' | '.join(header)} |\n|{rule}|")
        for label, flags in settings.items():
            for name, row in rows.items():
                times = measure(name, row, flags, arguments.rounds, device, peers)
                say(f"| {name} | {label} | {table(times)} |")
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


def tables(device: str) -> dict[str, dict[str, dict[str, Flags | None]]]:
    """By title and by label: the flags of ours and of the peers; None: the defaults of a run."""

    def same(**flags: bool) -> dict[str, Flags | None]:
        return {"ours": Flags(**flags), "peers": Flags(**flags)}

    if device == "cuda":
        equal = {"bf16": same(bf16=True, fused=True), "bf16, compiled": same(bf16=True, fused=True, compiled=True)}
    else:
        equal = {"float32": same(), "bf16": same(bf16=True)}
    return {
        "The same flags": equal,
        "Out of the box: ours with the defaults of src/train.py, the peers in a plain float32 loop": {
            "defaults against float32": {"ours": None, "peers": Flags()}
        },
    }


if __name__ == "__main__":
    main()
