"""Texts written with a cache and without, greedily and by beam search, on this machine.

    python experiments/benchmarks/decoding.py [--rounds 15] [--out decoding.md]

A decoder whose texts all have the greatest length, of a memory that is there already; the ways in turn, in one process.
"""

import argparse
import datetime
import time
from collections.abc import Callable
from pathlib import Path

import torch

from vitlab.decoding import BeamSearch, Greedy
from vitlab.machine import cpu_capabilities, keep_freed_memory
from vitlab.models import Decoder
from vitlab.models.text_state import CachedDecoderState, DecoderState
from vitlab.vocabulary import SpecialTokens

SPECIAL = SpecialTokens(begin=1, end=2, padding=0)
SIZES = {  # embed_dim, depth, heads, tokens that were read
    "as for lines of digits": (192, 3, 3, 65),
    "as for lines of text": (384, 6, 6, 197),
}
CASES = [("as for lines of digits", 64, 12), ("as for lines of digits", 64, 24), ("as for lines of text", 8, 12)]


def decoder(embed_dim: int, depth: int, num_heads: int, max_length: int) -> Decoder:
    """One that never ends a text."""
    torch.manual_seed(0)
    model = Decoder(
        vocab_size=16,
        max_length=max_length,
        memory_dim=embed_dim,
        embed_dim=embed_dim,
        depth=depth,
        num_heads=num_heads,
        mlp="gelu",
        mlp_ratio=4.0,
        mlp_dim=None,
        norm="layer_norm",
        norm_eps=1e-6,
        norm_first=True,
        position="learned_1d",
        scale_embedding=False,
        embed_norm=False,
        tied=False,
        causal=True,
        scaled_attention=True,
        initialization="xavier",
        drop_rate=0.0,
        attn_drop_rate=0.0,
    )
    torch.nn.init.zeros_(model.head.weight)  # every token is as likely, and the first of them is padding
    return model.eval()


def once(way: Callable, model: Decoder, kind: type[DecoderState], memory: torch.Tensor) -> float:
    """Seconds."""
    start = time.perf_counter()
    with torch.inference_mode():
        texts = way(kind(model, memory), SPECIAL)
    if memory.is_cuda:
        torch.cuda.synchronize()
    assert texts.present.all()
    return time.perf_counter() - start


def rows(rounds: int, device: str) -> list[str]:
    lines = []
    for name, batch, characters in CASES:
        embed_dim, depth, heads, tokens = SIZES[name]
        length = characters + 1  # and the end
        model = decoder(embed_dim, depth, heads, length).to(device)
        memory = torch.randn(batch, tokens, embed_dim, device=device)
        beam = BeamSearch(max_length=length, width=4, length_penalty=0.6)
        ways = {
            "greedy": (Greedy(max_length=length), CachedDecoderState),
            "greedy, no cache": (Greedy(max_length=length), DecoderState),
            "beam of 4": (beam, CachedDecoderState),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, (decode, kind) in ways.items():
                seconds[way].append(once(decode, model, kind, memory))
        taken = {way: 1000 * min(times) for way, times in seconds.items()}  # whatever else the machine does only adds
        greedy, anew, wide = taken.values()
        sizes = f"{embed_dim}, {depth}, {tokens}"
        lines.append(
            f"| {sizes} | {batch} | {characters} | {greedy:.1f} | {anew:.1f} | {wide:.1f} | {anew / greedy:.1f} | "
            f"{wide / greedy:.1f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else cpu_capabilities().get("cpu_name", "CPU")
    keep_freed_memory()  # as a run does
    lines = [
        f"{datetime.date.today()}, {machine}, {torch.get_num_threads()} threads, torch {torch.__version__}, float32. "
        f"Each time is the fastest of {arguments.rounds} rounds.",
        "",
        "| width, depth, tokens read | batch | characters | greedy, ms | without a cache, ms | beam of 4, ms | "
        "without / with cache | beam / greedy |",
        "|---|---|---|---|---|---|---|---|",
        *rows(arguments.rounds, device),
    ]
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
