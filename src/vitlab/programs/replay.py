"""Replay: compute the steps after a run's last state again, up to the first value that is not finite."""

import csv
import math
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from matplotlib.figure import Figure
from omegaconf import DictConfig
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from vitlab.atomic_files import write_atomically
from vitlab.callbacks.figures import write_figure
from vitlab.checkpoints.run_folder import CHECKPOINTS, CONFIG, LATEST, find_checkpoint, run_folder
from vitlab.checkpoints.run_identity import read_identity
from vitlab.errors import CheckpointError, format_error
from vitlab.programs import train
from vitlab.run.building.autoconfig import find_values
from vitlab.run.building.trainer import find_devices
from vitlab.run.printing.console import write_json
from vitlab.run.storage.newest_state import read_state
from vitlab.run.storage.output import output_folder
from vitlab.run.storage.start import Start, start_elsewhere

SHOWN = 5  # modules that are printed, the last one that of the first value that is not finite
STEPS = 200  # steps whose losses are kept


def replay(cfg: DictConfig) -> dict[str, Any] | None:
    """Train a run on from its newest state, into a folder that is thrown away, until a value is not finite. Writes and
    prints the step, its learning rate and samples, and the first layer with such a value; returns them, or None where
    all values of the rest of the training are finite. Raises CheckpointError for a folder without a run."""
    home = run_folder(cfg.run).absolute()
    with tempfile.TemporaryDirectory(prefix="vitlab_replay_") as work:
        start = read_start(cfg.run, home, Path(work) / "run")
        found = find_values(start.cfg, find_devices(start.cfg.trainer, start.folder))
        start = replace(start, cfg=found.cfg)
        parts = train.build(start, found.datamodule)
        if start.first_step >= parts.task.num_steps:
            print(f"{cfg.run} has ended at step {start.first_step} with finite weights: there is nothing to replay")
            return None
        place = output_folder(cfg.output, "replay", home / "replay", overwrite=cfg.overwrite)
        print(f"computing the steps from {start.first_step} to at most {parts.task.num_steps} again", flush=True)
        finder = Finder()
        train.train_until(start, parts, finder, Found)
    if finder.found is None:
        print(f"all values of the steps {start.first_step} to {parts.task.num_steps} are finite on this machine")
        return None
    with place.make_folder() as folder:
        write_json(folder / "replay.json", finder.found)
        write_modules(finder.modules, folder / "modules.csv")
        write_figure(draw(finder), folder / "replay.png")
    print(describe(finder, folder))
    return finder.found


def read_start(run: str, home: Path, folder: Path) -> Start:
    """Take a run to another folder, from its newest state or, without one, from step 0, and to one device."""
    if (home / CONFIG).is_file() and not list(home.glob(f"{CHECKPOINTS}/*.ckpt")):
        state, origin, record = None, home / CONFIG, read_record(home)
    else:
        state = origin = find_checkpoint(run, *LATEST)
        record = read_state(state)["run"]
    (folder / CHECKPOINTS).mkdir(parents=True)
    for name in ("metrics.csv", f"{CHECKPOINTS}/best.ckpt"):  # which the run would miss with a warning
        if (home / name).is_file():
            (folder / name).symlink_to(home / name)
    return start_elsewhere(record, origin, folder, state, find_changes(record))


def read_record(home: Path) -> dict[str, Any]:
    """Read what a run that has saved no state has in its folder. Raises CheckpointError."""
    try:
        config = yaml.safe_load((home / CONFIG).read_bytes())
    except yaml.YAMLError as error:
        raise CheckpointError(f"{home / CONFIG} is damaged: {format_error(error)}") from None
    identity = read_identity(home)
    return {"config": config, "identity": None if identity is None else asdict(identity)}


def find_changes(record: dict[str, Any]) -> dict[str, Any]:
    """Return what of a config is changed: hooks do not see into compiled blocks, and one process finds the value alone,
    with as many samples at once as each of the run's took."""
    changes: dict[str, Any] = {"compile": False, "trainer": {"strategy": "auto", "devices": 1, "num_nodes": 1}}
    if size := record.get("device_batch_size"):
        changes["data"] = {"device_batch_size": size}
    return changes


class Found(SystemExit):
    """A value is not finite."""


class Finder(Callback):
    """Ends the training in the step in which a value is not finite, and keeps what it can be recognized by.

    `modules` are those of the model in the order in which they were called in this step, with the largest absolute
    value of what they took and gave; `losses` are steps, losses and norms of gradients so far.
    """

    def __init__(self) -> None:
        self.found: dict[str, Any] | None = None
        self.first: str | None = None
        self.modules: list[dict[str, Any]] = []
        self.losses: list[tuple[int, float, float]] = []
        self.indices: list[int] = []
        self.loss = math.nan

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for name, module in pl_module.model.named_modules():
            module.register_forward_hook(self.look_at(name or "the model"))
        for name, parameter in pl_module.named_parameters():
            if parameter.requires_grad and trainer.precision != "16-mixed":  # whose scaled gradients may overflow
                parameter.register_post_accumulate_grad_hook(self.look_at_gradient(name))

    def look_at(self, name: str) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if module.training and torch.is_grad_enabled():
                row = {"module": name, "inputs": find_largest(inputs), "weights": find_largest(module._parameters)}
                self.modules.append(row | {"outputs": find_largest(output)})
                wrong = next(
                    (part for part in ("inputs", "outputs") if not math.isfinite(self.modules[-1][part])), None
                )
                if self.first is None and wrong is not None:
                    self.first = f"the {wrong} of {name} ({type(module).__name__})"

        return look

    def look_at_gradient(self, name: str) -> Any:
        def look(parameter: Tensor) -> None:
            if self.first is None and parameter.grad is not None and not parameter.grad.isfinite().all():
                self.first = f"the gradient of {name}"

        return look

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self.modules, self.indices = [], []
        self.indices += batch.index.tolist()

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        self.loss = float(loss.detach()) * trainer.accumulate_grad_batches
        if self.first is None and not math.isfinite(self.loss):
            self.first = "the loss, computed from finite outputs"

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        self.losses.append((trainer.global_step + 1, self.loss, float(nn.utils.get_total_norm(gradients))))
        del self.losses[:-STEPS]
        self.end(trainer, pl_module, trainer.global_step + 1)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        for name, parameter in pl_module.named_parameters():
            if self.first is None and not parameter.isfinite().all():
                self.first = f"the update of {name}"
        self.end(trainer, pl_module, trainer.global_step)

    def end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, step: int) -> None:
        if self.first is None:
            return
        self.found = {
            "step": step,
            "first": self.first,
            "loss": self.loss,
            "gradient_norm": self.losses[-1][2],
            "learning_rate": max(group["lr"] for group in trainer.optimizers[0].param_groups),
            "samples": self.indices,
        }
        raise Found


def find_largest(values: Any) -> float:
    """Return the largest absolute value in nested tensors of floats; NaN if there is one, 0 without tensors."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return max((float(t.detach().abs().max()) for t in tensors if t.numel()), key=lambda x: (x != x, x), default=0.0)


# -- what is written


def write_modules(modules: list[dict[str, Any]], path: Path) -> None:
    with write_atomically(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, modules[0])
        rows.writeheader()
        rows.writerows(modules)


def draw(finder: Finder) -> Figure:
    """Draw the loss and the norm of the gradients by steps, and the largest outputs by modules in the last step."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps, losses, norms = zip(*finder.losses, strict=True)
    left.semilogy(steps, losses, ".-", label="loss")
    left.semilogy(steps, norms, ".-", label="norm of the gradients")
    left.set_xlabel("step")
    left.legend()
    right.semilogy([row["outputs"] for row in finder.modules], ".-")
    right.set_xlabel("module, in the order of its call")
    right.set_ylabel("largest absolute output")
    right.set_title(f"step {steps[-1]}: first not finite is\n{finder.first}", fontsize=9)
    return figure


def describe(finder: Finder, folder: Path) -> str:
    """Say what was found, with the modules that were called before."""
    found = finder.found or {}
    names = [row["module"] for row in finder.modules]
    last = next((i for i, row in enumerate(finder.modules) if not math.isfinite(row["outputs"])), len(names) - 1)
    samples = ", ".join(map(str, found["samples"][:8])) + (", …" if len(found["samples"]) > 8 else "")
    lines = [
        f"step {found['step']}: the first value that is not finite is in {found['first']}",
        f"loss {found['loss']:.6g}, norm of the gradients {found['gradient_norm']:.6g}, "
        f"learning rate {found['learning_rate']:.3g}, samples {samples}",
        *(
            f"  {row['module']}: inputs up to {row['inputs']:.3g}, weights up to {row['weights']:.3g}, outputs up to "
            f"{row['outputs']:.3g}"
            for row in finder.modules[max(0, last + 1 - SHOWN) : last + 1]
        ),
        f"written to {folder}",
    ]
    return "\n".join(lines)
