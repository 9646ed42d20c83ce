"""A training run by the command that a user would give, in this process, and the metrics it left."""

import contextlib
import csv
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scale import Scale

SRC = Path(__file__).resolve().parents[2] / "src"
UNNEEDED = (  # pictures, and what reads the whole training split
    "~callbacks.evaluation_report",
    "~callbacks.batch_picture",
    "~callbacks.model_views",
    "~callbacks.calibration",
)


class Row(NamedTuple):
    """A line of metrics.csv."""

    step: int
    values: dict[str, float]

    def __getitem__(self, name: Any) -> Any:
        return self.values[name]


def overrides(scale: Scale, folder: Path, *more: str) -> list[str]:
    """Give the overrides of any run of the proof; steps share the cache beside their folders."""
    shared = [*UNNEEDED, "logger=none", f"data.cache.root={folder.parent / 'cache'}"]
    other = any(word.startswith("trainer=") for word in more)
    shared += [word for word in scale.trainer if not (other and word.startswith("trainer="))]
    return [*shared, f"trainer.log_every_n_steps={scale.log_every}", *more]


def waves(scale: Scale, folder: Path, *more: str) -> list[str]:
    """Give the overrides of a run on waves (data=synthetic) of the scale's sizes, with a batch each for validation and
    test."""
    share = scale.batch / scale.num_images
    sizes = [f"data.image_size={scale.image_size}", f"data.source.num_samples={scale.num_images}"]
    sizes += [f"global_batch_size={scale.batch}", f"optimizer.lr={scale.lr}", "data.num_classes=8"]
    sizes += [f"data.split.val_fraction={share}", f"data.split.test_fraction={share}"]
    return overrides(scale, folder, "data=synthetic", *sizes, *more)


def for_steps(steps: int) -> list[str]:
    """Give the overrides of a run of so many steps, with a validation at its end alone."""
    return ["trainer.max_epochs=-1", f"trainer.max_steps={steps}", f"+trainer.check_val_every_n_epoch={steps}"]


def train(folder: Path, options: list[str]) -> list[Row]:
    """Train into `folder`, and read its metrics. Raises AssertionError unless the exit status is 0."""
    import train as program

    sys.argv = [str(SRC / "train.py"), *options]
    if not any(option.startswith("resume=") for option in options):
        sys.argv.append(f"hydra.run.dir={folder}")
    status: Any = 0
    try:
        program.main()
    except SystemExit as stop:
        status = stop.code
    assert not status, f"train.py ended with status {status}"
    return rows(folder)


def rows(folder: Path) -> list[Row]:
    """Read the rows of metrics.csv; none while there is no such file."""
    path = folder / "metrics.csv"
    if not path.is_file():
        return []
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    return [Row(int(line.pop("step")), {name: float(cell) for name, cell in line.items() if cell}) for line in lines]


def losses(run: list[Row]) -> tuple[float, float]:
    """The first and the last training loss of a run. Raises AssertionError unless all are finite and the lowest, of the
    second half, is below the first: within so few steps a single loss may be higher by chance."""
    found = [row["train/loss"] for row in run if "train/loss" in row.values]
    assert all(math.isfinite(loss) for loss in found), f"a loss is not finite: {found}"
    assert min(found[len(found) // 2 :]) < found[0], f"the loss does not fall: {found}"
    return found[0], found[-1]


def images_per_second(run: list[Row]) -> float:
    """The median over the logging intervals but the first, in which everything is warmed up."""
    return statistics.median([row["train/images_per_second"] for row in run if "train/loss" in row.values][1:])


@contextlib.contextmanager
def before_each(owner: type, method: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` before each call of a method."""
    original = getattr(owner, method)

    def both(*arguments: Any, **named: Any) -> Any:
        act()
        return original(*arguments, **named)

    setattr(owner, method, both)
    try:
        yield
    finally:
        setattr(owner, method, original)
