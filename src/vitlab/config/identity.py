"""Find the run that a command means: one of the same name that computes the same, on whatever machine."""

from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from vitlab.atomic_files import as_json, digest_of, write_whole
from vitlab.checkpoints.run_folder import has_state
from vitlab.checkpoints.run_lock import described, holder_of, in_use
from vitlab.config.frozen import OF_A_SWEEP, own_keys, without
from vitlab.config.resume import movable
from vitlab.config.stored_config import OF_THE_MACHINE, portable
from vitlab.errors import CheckpointError

AUTO = "auto"  # the value of resume= that finds its own run
FILE = ".identity"
ASIDE = ("resume", "break_lock", "logger", "needed", *OF_A_SWEEP)
OF_THE_TRAINER = ("accelerator", "devices", "strategy", "num_nodes")


def identity(cfg: DictConfig) -> str:
    """Hash the config without what belongs to a machine: devices, strategy, places of data, loggers."""
    config = without(portable(own_keys(cfg), OF_THE_MACHINE), ASIDE)
    flat = {key: value for key, value in leaves(config) if not of_a_machine(key)}
    return digest_of(as_json(flat))


def of_a_machine(key: str) -> bool:
    group, _, rest = key.partition(".")
    return group in ASIDE or movable(key) or (group == "trainer" and rest.partition(".")[0] in OF_THE_TRAINER)


def leaves(node: dict, key: str = "") -> list[tuple[str, object]]:
    """Flatten the values below a node to their full keys."""
    found: list[tuple[str, object]] = []
    for name, value in node.items():
        place = f"{key}.{name}" if key else str(name)
        found += leaves(value, place) if isinstance(value, dict) and value else [(place, value)]
    return found


def own_run(cfg: DictConfig, folders: list[Path]) -> Path | None:
    """Find the one of these folders that is a run of this config with a state to go on from; None where there is none.
    Raises CheckpointError for several, and for one that is running."""
    own = identity(cfg)
    same = [folder for folder in folders if identity_in(folder) == own]
    for folder in filter(in_use, same):
        raise CheckpointError(
            f"resume=auto finds {folder}, which is in use by {described(holder_of(folder))}; wait for it, or stop it"
        )
    begun = [folder for folder in same if has_state(folder)]
    if len(begun) > 1:
        raise CheckpointError(
            f"resume=auto finds several runs of this config, {', '.join(map(str, begun))}; name one: resume={begun[0]}"
        )
    return begun[0] if begun else None


def identity_in(folder: Path) -> str:
    file = folder / FILE
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def mark(folder: Path, cfg: DictConfig) -> None:
    """Let resume=auto find a run by its folder."""
    write_whole(folder / FILE, identity(cfg).encode())


def of_the_machine(overrides: list[str]) -> list[str]:
    """Keep the overrides that a start on another machine may change; all others are part of the run's identity."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    kept = [one for one in parsed if one.key_or_group in ("trainer", "logger") or of_a_machine(one.key_or_group)]
    return [str(one.input_line) for one in kept if one.key_or_group not in ("resume", *OF_A_SWEEP)]
