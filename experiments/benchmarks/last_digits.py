"""Which settings of a machine change the last digits of training on a CPU: the same steps under each, compared.

    python experiments/benchmarks/last_digits.py [--steps 12] [--ways float32 ...] [--out last_digits.md]

The default model learns for some steps on the digits, in a process of its own with two threads, or in two processes of
one thread each. Then the same is done with one setting changed. The table gives the largest difference of a weight; 0
means that every tensor of the saved state is equal bit for bit. Instructions that the processor does not have are left
out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import vitlab
from vitlab.checkpoints.differences import find_differences, list_tensors
from vitlab.checkpoints.run_identity import read_checkpoint
from vitlab.verification.stretches import PLAIN

TRAIN = Path(vitlab.__file__).parents[1] / "train.py"
WAYS = {
    "float32": ["trainer.precision=32-true"],
    "bf16-mixed": ["trainer.precision=bf16-mixed"],
    "float32, compiled": ["trainer.precision=32-true", "compile=true"],
    "bf16-mixed, compiled": ["trainer.precision=bf16-mixed", "compile=true"],
    "float32, two processes": [
        "trainer.precision=32-true",
        "trainer=ddp",
        "trainer.accelerator=cpu",
        "trainer.devices=2",
    ],
}
SETTINGS = {
    "the same again": {},
    "another number of threads": {"OMP_NUM_THREADS": {"1": "2", "2": "1"}},
    "`ONEDNN_MAX_CPU_ISA=AVX2`": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "`ONEDNN_MAX_CPU_ISA=AVX512_CORE`": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "`ATEN_CPU_CAPABILITY=avx2`": {"ATEN_CPU_CAPABILITY": "avx2"},
    "`MKL_CBWR=COMPATIBLE`": {"MKL_CBWR": "COMPATIBLE"},
}
QUIET = ["logger=none", "~callbacks.batch_picture", "~callbacks.model_views", "trainer.max_epochs=null"]


def list_settings() -> dict[str, dict[str, Any]]:
    """List the settings that can change something on this processor."""
    best = torch.backends.cpu.get_cpu_capability()
    return {
        name: setting
        for name, setting in SETTINGS.items()
        if ("AVX512" not in name or best == "AVX512") and ("avx2" not in name or best != "AVX2")
    }


def train(words: list[str], steps: int, setting: dict[str, Any], folder: Path) -> dict[str, Any] | str:
    """Train in a process of its own, with the setting in its environment; returns the tensors of its last state, or the
    kind of error with which it ended."""
    threads = "1" if "trainer.devices=2" in words else "2"
    changed = {key: value[threads] if isinstance(value, dict) else value for key, value in setting.items()}
    command = [sys.executable, str(TRAIN), *words, *QUIET, f"trainer.max_steps={steps}", f"hydra.run.dir={folder}"]
    done = subprocess.run(
        [*command, "+trainer.limit_val_batches=1", "+trainer.limit_test_batches=1"],
        env={**os.environ, "OMP_NUM_THREADS": threads, **changed},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return str(done.stderr.strip().splitlines()[-1].partition(":")[0])
    state = read_checkpoint(folder / "checkpoints" / "latest.ckpt")
    return list_tensors({key: value for key, value in state.items() if key not in PLAIN})


def compare(then: dict[str, Any] | str, now: dict[str, Any] | str) -> str:
    """Give the largest difference of a weight; 0 only where all tensors are equal. An error is given by its kind."""
    if isinstance(then, str) or isinstance(now, str):
        return then if isinstance(then, str) else str(now)
    if not find_differences(then, now):
        return "0"
    weights = [name for name in then if name.startswith("state_dict.") and then[name].is_floating_point()]
    largest = max(float((now[name].double() - then[name].double()).abs().max()) for name in weights)
    return f"{largest:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    settings = list_settings()
    lines = [f"| setting | {' | '.join(arguments.ways)} |", "|---" * (len(arguments.ways) + 1) + "|"]
    cells: dict[str, list[str]] = {name: [] for name in settings}
    for way in arguments.ways:
        with tempfile.TemporaryDirectory() as root:
            first = train(WAYS[way], arguments.steps, {}, Path(root) / "first")
            for number, (name, setting) in enumerate(settings.items()):
                cells[name].append(compare(first, train(WAYS[way], arguments.steps, setting, Path(root) / str(number))))
                print(f"{way}; {name}: {cells[name][-1]}", file=sys.stderr, flush=True)
    lines += [f"| {name} | {' | '.join(row)} |" for name, row in cells.items()]
    table = "\n".join(lines)
    print(table)
    if arguments.out:
        arguments.out.write_text(f"{__doc__}\n{table}\n")


if __name__ == "__main__":
    main()
