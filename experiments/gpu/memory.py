"""Many short epochs, each with a validation, an average of the weights and a saved state: memory must not grow."""

import torch
from program import before_each, losses, train, waves
from step import Assignment, Found

from vitlab.callbacks.step_log import peak_memory_mib
from vitlab.tasks import Task

WARM = 5  # epochs after which all is there that is needed


def stays_flat(given: Assignment) -> Found:
    scale = given.scale
    held: list[float] = []

    def note() -> None:
        held.append(held_mib(scale.device))

    options = [*scale.small, f"trainer.max_epochs={scale.epochs}", "callbacks=[default,ema]", "mixing=mixup_cutmix"]
    options += [f"data.source.num_samples={scale.few_images}"]
    with before_each(Task, "on_validation_epoch_end", note):
        run = train(given.folder / "run", waves(scale, given.folder, *options))
    losses(run)
    assert len(held) >= scale.epochs > WARM, f"{len(held)} validations in {scale.epochs} epochs"
    growth = held[-1] - held[WARM]
    figure = f"{held[WARM]:,.0f} MiB after {WARM} epochs, {held[-1]:,.0f} MiB after {scale.epochs}"
    assert growth <= scale.kept_mib, figure
    return Found(figure, {"held_mib": held})


def held_mib(device: str) -> float:
    """The most that was taken from the system so far: of the GPU's memory, or by the process."""
    if device == "cuda":
        return torch.cuda.max_memory_reserved() / 2**20
    return peak_memory_mib(torch.device("cpu"))
