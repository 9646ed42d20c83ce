"""Say in one line whether runs are as their chains of digests say; nothing is computed again."""

from collections.abc import Iterable
from pathlib import Path

from vitlab.checkpoints.chain import CHAIN
from vitlab.checkpoints.run_folder import CHECKPOINTS
from vitlab.errors import VitlabError
from vitlab.verification.recorded import compare_best, compare_result, read_recorded


def describe_seal(folder: Path) -> str:
    """Say whether a run's best model and result are those of its chain, and under which last digest."""
    if not (folder / CHAIN).is_file():
        return f"none: the run has no {CHAIN}"
    try:
        run, best = read_recorded(folder), folder / CHECKPOINTS / "best.ckpt"
        changes = (compare_best(run, best) if best.is_file() else []) + compare_result(run)
    except VitlabError as error:
        changes = [str(error)]
    if changes:
        return f"broken: {changes[0]}"
    return f"as recorded, {run.lines[-1]['link']}; verify computes it again"


def describe_seals(folders: Iterable[Path]) -> list[str]:
    """Say of how many runs model and result are as recorded, and name what is not; nothing of runs without a chain."""
    seals = {folder: describe_seal(folder) for folder in folders}
    broken = [f"The seal of {folder} is {seal}." for folder, seal in seals.items() if seal.startswith("broken")]
    intact = sum(seal.startswith("as recorded") for seal in seals.values())
    return [*broken, f"{intact} of {len(seals)} runs are as recorded in their chains."] if broken or intact else []
