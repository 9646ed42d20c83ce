"""Tell at the start of a run whether the model is scored on images that it is trained on."""

from collections.abc import Mapping

from pytorch_lightning.utilities.rank_zero import rank_zero_only
from rich.console import Console

from vitlab.data.duplicates import Overlap, Place, overlap
from vitlab.data.loading.dataset import ImageSplit
from vitlab.invocation import typed

SHOWN = 3


@rank_zero_only
def print_overlap(splits: Mapping[str, ImageSplit]) -> None:
    """Print one line, and below it the first images that stand in two splits; nothing where images are composed anew in
    each epoch."""
    if any(split.pool.draws for split in splits.values()):
        return
    found = overlap(splits)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{'overlap':<9}{sentence(found)}")
    for group in found.groups[:SHOWN]:
        console.print(f"{'':<9}{named(group, splits)}", style="yellow")


def sentence(found: Overlap) -> str:
    """Say what was found, and what to do about it."""
    if found.unchecked:
        return f"not checked: {found.unchecked}; {typed('survey')} with the same data= looks"
    if not found.groups:
        return f"none: no image of {found.num_images:,} stands in two splits"
    parts = [f"{count:,} of {later} are in {earlier}" for (earlier, later), count in found.counts().items()]
    return f"WARNING: images stand in two splits ({', '.join(parts)}): scores are too good; the first of them:"


def named(group: list[Place], splits: Mapping[str, ImageSplit]) -> str:
    """Name the images of a group with their splits, four at most."""
    words = [f"{split}: {splits[split].name(place)}" for split, place in group[:4]]
    return " = ".join(words) + (f" = {len(group) - 4:,} more" if len(group) > 4 else "")
