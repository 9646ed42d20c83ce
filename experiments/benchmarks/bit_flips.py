"""How many flipped bits recomputed_steps finds: one for each step, at a random place, in the first of its computations.

    python experiments/benchmarks/bit_flips.py [--flips 200] [--out bit_flips.md]

A bit of an activation (what a module of the model returns), of a gradient (as a parameter receives it), of a weight
after its update, or of a weight before the step. Places, and bits 0 to 31 of a float32, are drawn evenly; the model is
ViT-Mu/4 on the digits. A flip is undone before the next step.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vitlab
from vitlab.callbacks.recomputed_steps import RecomputedSteps, overwrite
from vitlab.errors import RecomputationError
from vitlab.tasks import Task

KINDS = ("activation", "gradient", "updated weight", "weight before the step")
PARTS = {"exponent or sign": range(23, 32), "upper half of the fraction": range(12, 23), "lower half": range(12)}
QUIET = [f"~callbacks.{name}" for name in ("batch_picture", "model_views", "evaluation_report", "step_log", "progress")]


class Faults:
    """Flips one bit in each step, and counts what is found."""

    def __init__(self, kind: str, seed: int):
        self.kind, self.random = kind, random.Random(seed)
        self.flips, self.found = Counter[str](), Counter[str]()
        self.part = ""

    def flip(self, tensor: Tensor) -> Tensor:
        """Return a float32 tensor with one bit flipped."""
        self.part = self.random.choices(list(PARTS), [len(bits) for bits in PARTS.values()])[0]
        bits = tensor.detach().clone().contiguous().view(torch.int32)
        bit = self.random.choice(PARTS[self.part])
        bits.view(-1)[self.random.randrange(bits.numel())] ^= (1 << bit) - (1 << 32) * (bit == 31)
        self.flips[self.part] += 1
        return bits.view(torch.float32)

    def place(self, task: Task) -> Callable[[], object]:
        """Put a fault into the computation that comes next; returns what takes it away."""
        if self.kind == "activation":
            module = self.random.choice([m for m in task.model.modules() if not list(m.children())])
            return module.register_forward_hook(self.change_output).remove
        if self.kind == "gradient":
            return self.random.choice(list(task.model.parameters())).register_hook(self.flip).remove
        if self.kind == "weight before the step":
            weight = self.random.choice(list(task.model.parameters()))
            kept = weight.detach().clone()
            weight.data.copy_(self.flip(weight))
            return partial(weight.data.copy_, kept)
        return lambda: None

    def change_output(self, module: torch.nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output + (self.flip(output) - output).detach()


def run(kind: str, flips: int, folder: Path) -> Faults:
    """Train with one fault in each step."""
    faults, remove, calls = Faults(kind, 0), list[Callable[[], object]](), [0]
    step, end, compare = Task.training_step, RecomputedSteps.on_train_batch_end, RecomputedSteps.compare

    def training_step(task: Task, batch: Any, batch_idx: int) -> Tensor:
        calls[0] += 1
        if calls[0] % 2:
            remove.append(faults.place(task))
        else:
            if kind != "weight before the step":
                remove.pop()()
        return step(task, batch, batch_idx)

    def batch_end(callback: RecomputedSteps, trainer: Any, task: Task, *rest: Any) -> None:
        if kind == "updated weight":
            weight = faults.random.choice(list(task.model.parameters()))
            weight.data.copy_(faults.flip(weight))
        weights, states = callback.weights, callback.states
        end(callback, trainer, task, *rest)
        if kind == "weight before the step":  # take the step back, which may have given NaN
            overwrite(dict(task.named_parameters()), weights)
            trainer.optimizers[0].load_state_dict(states)
        while remove:
            remove.pop()()

    def counted(callback: RecomputedSteps, *rest: Any) -> None:
        try:
            compare(callback, *rest)
        except RecomputationError:
            faults.found[faults.part] += 1

    Task.training_step, RecomputedSteps.on_train_batch_end, RecomputedSteps.compare = training_step, batch_end, counted
    try:
        vitlab.train(
            *QUIET,
            f"hydra.run.dir={folder}",
            model="vit_mu4",
            callbacks=["default", "recomputed_steps"],
            logger="none",
            trainer={"max_steps": flips, "precision": "32-true", "limit_val_batches": 0},
            global_batch_size=32,
            **{"callbacks.recomputed_steps.every_n_steps": 1, "data.loading.num_workers": 0},
        )
    finally:
        Task.training_step, RecomputedSteps.on_train_batch_end, RecomputedSteps.compare = step, end, compare
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = [f"| flipped bit of | {' | '.join(PARTS)} | all |", "|---" * (len(PARTS) + 2) + "|"]
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            faults = run(kind, arguments.flips, Path(folder) / "run")
        parts = [f"{faults.found[part]} of {faults.flips[part]}" for part in PARTS]
        lines.append(f"| {kind} | {' | '.join(parts)} | {faults.found.total()} of {faults.flips.total()} |")
    table = "\n".join(lines)
    print(table)
    if arguments.out:
        arguments.out.write_text(f"{__doc__}\n{table}\n")


if __name__ == "__main__":
    main()
