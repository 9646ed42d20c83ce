"""Collect the result of a run, for result.json and for its user."""

from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl

from vitlab.config.nodes import Node
from vitlab.invocation import typed
from vitlab.models import Transformer
from vitlab.tasks import Answering, Contrastive, Task, TextGeneration
from vitlab.tasks.limits import leaves_out
from vitlab.tasks.supervised import Supervised


@dataclass(frozen=True)
class Result:
    """`score` is the best value of the monitored metric, None where nothing was kept; `test` are the best model's
    metrics, `last` those of the last validation; `partial` names the settings that leave samples out."""

    score: float | None
    best_step: int
    steps: int
    steps_of_this_start: int
    test: dict[str, float]
    last: dict[str, float]
    seconds: float
    images_per_second: float | None
    skipped: dict[str, int]
    partial: list[str]

    def facts(self, things: str) -> dict[str, str]:
        """Give lines to print below the metrics, of a run on such `things`."""
        steps = f"{self.steps_of_this_start:,} steps, best at step {self.best_step:,}"
        facts = {"time": f"{self.seconds:.0f} s for {steps}"}
        if self.images_per_second:
            facts["speed"] = f"{self.images_per_second:,.0f} {things}/s in training"
        if self.skipped:
            facts["skipped"] = ", ".join(f"{n} unreadable images in {split}" for split, n in self.skipped.items())
        if self.partial:
            facts["partial"] = f"not every sample was used: {', '.join(self.partial)}"
        return facts


def partial_use(trainer: pl.Trainer) -> list[str]:
    """List the settings by which this trainer leaves samples out on purpose."""
    if trainer.fast_dev_run:
        return ["fast_dev_run"]
    limits = [f"limit_{split}_batches" for split in ("train", "val", "test")]
    return [limit for limit in limits if leaves_out(getattr(trainer, limit))]


def commands(folder: Path, trainer: Node, task: Task) -> dict[str, str]:
    """Say where the run lies, and give the commands to go on with."""
    run = shown(folder)
    pictures = {"pictures": str(run / "pictures")} if (folder / "pictures").is_dir() else {}
    use = {"fine-tune": f"{typed('train')} model=<the encoder's> model.pretrained={run}"}
    if isinstance(task, Supervised | TextGeneration | Contrastive):
        reads_texts = isinstance(task.model, Transformer)
        given = "texts=<a text, or a file of lines>" if reads_texts else "images=<file, folder or glob>"
        use = {"predict": f"{typed('predict')} run={run} {given}"}
    if isinstance(task, Answering):
        use = {"predict": f"{typed('predict')} run={run} images=<file, folder or glob> question='how many?'"}
    if isinstance(task, Contrastive) and not task.has_classes:
        use = {"predict": f"{typed('predict')} run={run} images=<file, folder or glob> 'labels=[cat,dog]'"}
    return {
        "folder": str(run),
        **pictures,
        "evaluate": f"{typed('evaluate')} run={run}",
        **use,
        "go on": f"{typed('train')} resume={run} {twice_as_long(trainer)}",
    }


def shown(path: Path) -> Path:
    """A path as it is typed from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def twice_as_long(trainer: Node) -> str:
    """Give the override that makes a run twice as long."""
    if trainer.max_steps >= 0:
        return f"trainer.max_epochs=-1 trainer.max_steps={2 * trainer.max_steps}"
    return f"trainer.max_epochs={2 * trainer.max_epochs}"
