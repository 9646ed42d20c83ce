"""Find the run that a command means: one of the same name that computes the same, on whatever machine."""

from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from vitlab.checkpoints.run_folder import has_state, read_marks
from vitlab.checkpoints.run_lock import format_holder, is_in_use, read_holder
from vitlab.config.stored_config import OF_A_SWEEP, config_digest, is_machine_key
from vitlab.errors import CheckpointError

AUTO = "auto"  # the value of resume= that finds its own run


def find_own_run(cfg: DictConfig, folders: list[Path]) -> Path | None:
    """Find the one of these folders that is a run of this config with a state to go on from; None where there is none.
    Raises CheckpointError for several, and for one that is running."""
    own = config_digest(cfg)
    same = [folder for folder in folders if read_marks(folder).get("auto") == own]
    for folder in filter(is_in_use, same):
        raise CheckpointError(
            f"resume=auto finds {folder}, which is in use by {format_holder(read_holder(folder))}; wait until it ends, "
            "or "
            "stop it"
        )
    begun = [folder for folder in same if has_state(folder)]
    if len(begun) > 1:
        raise CheckpointError(
            f"resume=auto found several runs of this config: {', '.join(map(str, begun))}; name one: resume={begun[0]}"
        )
    return begun[0] if begun else None


def select_machine_overrides(overrides: list[str]) -> list[str]:
    """Keep the overrides that a start on another machine may change; all others are part of the run's identity."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    kept = [one for one in parsed if one.key_or_group in ("trainer", "logger") or is_machine_key(one.key_or_group)]
    return [str(one.input_line) for one in kept if one.key_or_group not in ("resume", *OF_A_SWEEP)]
