"""Record where a run comes from: versions, machine, git commit, and every start it had."""

import functools
import json
import platform
import shlex
import subprocess
import time
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from vitlab.atomic_files import compute_digest, format_json, set_aside, write_json, write_whole
from vitlab.checkpoints.run_folder import CONFIG, read_marks, write_marks
from vitlab.checkpoints.run_identity import RunIdentity
from vitlab.config.build import TRUSTED
from vitlab.config.home import OF_THE_USER, ROOT
from vitlab.config.nodes import resolve_config
from vitlab.config.trust import list_packages
from vitlab.invocation import format_command
from vitlab.machine import cpu_capabilities

PACKAGES = (
    "vitlab",
    "torch",
    "torchvision",
    "pytorch-lightning",
    "torchmetrics",
    "hydra-core",
    "wandb",
    "numpy",
    "pillow",
)


def versions() -> dict[str, str]:
    """Give the versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def git_state() -> dict[str, Any]:
    """Give the commit of the checkout, and whether files differ from it; empty outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "modified": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def device_name() -> str:
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return f"{cpu_capabilities().get('cpu_name', platform.machine())}, {torch.get_num_threads()} threads"


def record_config(folder: Path, own: RunIdentity, config: bytes) -> None:
    """Write config.yaml, and before it its digest and the run's identity: a kill between the two leaves a file whose
    digest is known."""
    before = read_marks(folder).get("config_yaml", [])
    write_marks(folder, run=asdict(own), config_yaml=[*before[-1:], compute_digest(config)])
    write_whole(folder / CONFIG, config)


def digest_sources(packages: Iterable[str]) -> dict[str, str]:
    """Digest the Python files of each package or module."""
    found = {}
    for name in packages:
        spec = find_spec(name)
        places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
        files = sorted(file for place in places for file in place.rglob("*.py"))
        if not files and spec and spec.origin and Path(spec.origin).is_file():
            files = [Path(spec.origin)]
        found[name] = compute_digest(b"\0".join(file.read_bytes() for file in files))
    return found


def list_own_packages(cfg: DictConfig) -> list[str]:
    """List the packages of the user's own code that a config builds."""
    return list_packages(resolve_config(cfg)) if TRUSTED or OF_THE_USER else []


def digest_code(cfg: DictConfig) -> str:
    """Digest the code that trains: vitlab, and the user's own."""
    return compute_digest(format_json({**digest_vitlab(), **digest_sources(list_own_packages(cfg))}))


@functools.cache
def digest_vitlab() -> dict[str, str]:
    return digest_sources([__name__.partition(".")[0]])


def record_start(folder: Path, words: list[str], step: int, last: int, packages: Iterable[str] = ()) -> None:
    """Append this start to provenance.json: when, from which step to which, with which words of the command, on what.
    Warn if the code of the user's `packages` is not that of the start before."""
    path = folder / "provenance.json"
    starts = read_earlier_starts(path)
    own_code = digest_sources(packages)
    before = starts[-1].get("own_code", {}) if starts else {}
    for name in (name for name in own_code if before.get(name, own_code[name]) != own_code[name]):
        warnings.warn(
            f"the code of {name} has changed since the last start of this run; the run continues with the new code",
            stacklevel=2,
        )
    starts.append(
        {
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "from_step": step,
            "to_step": last,
            "command": " ".join([format_command("train"), *map(shlex.quote, words)]),
            "device": device_name(),
            "git": git_state(),
            "own_code": own_code,
            "versions": versions(),
        }
    )
    write_json(path, starts)


def read_earlier_starts(path: Path) -> list[dict[str, Any]]:
    """Read the earlier starts from the file. A damaged file is kept beside it, and blocks nothing."""
    if not path.is_file():
        return []
    try:
        starts = json.loads(path.read_bytes())
    except ValueError:
        starts = None
    if not isinstance(starts, list):
        aside = set_aside(path)
        warnings.warn(f"{path} is damaged; it is kept as {aside.name}, and a new one is started", stacklevel=2)
        return []
    return starts
