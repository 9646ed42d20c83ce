"""Check what a checkpoint must hold, so that one that was cut or tampered with is refused by name, not by a
traceback."""

from typing import Any

from packaging.version import InvalidVersion, Version

from vitlab.errors import CheckpointError

WEIGHTS: dict[str, type] = {  # what every checkpoint holds
    "state_dict": dict,
    "global_step": int,
    "run": dict,
    "run.config": dict,
    "run.choices": dict,
    "run.class_names": list,
    "run.device_batch_size": int,
    "run.fingerprint": str,
}
STATE: dict[str, type] = {  # what a state to resume from also holds
    "pytorch-lightning_version": str,
    "epoch": int,
    "loops": dict,
    "callbacks": dict,
    "optimizer_states": list,
    "optimizer_states.0": dict,
    "optimizer_states.0.state": dict,
    "optimizer_states.0.param_groups": list,
    "lr_schedulers": list,
    "lr_schedulers.0": dict,
    "lr_schedulers.0.last_epoch": int,
    "lr_schedulers.0.lr_lambdas": list,
}
CONFIG = ("name", "seed", "monitor", "global_batch_size", "model", "data", "task", "optimizer", "schedule", "trainer")
KINDS = {dict: "a table", list: "a list", int: "a whole number", str: "a text"}


def check_contents(checkpoint: dict[str, Any], path: str) -> None:
    """Raise CheckpointError, naming the place, for a checkpoint from which no model could be rebuilt."""
    check_places(checkpoint, WEIGHTS, path)
    for name, value in checkpoint["state_dict"].items():
        if not hasattr(value, "shape"):
            raise CheckpointError(f"{path} is damaged: {name} is {value!r:.80}, and should be a tensor")
    for key in CONFIG:
        if key not in checkpoint["run"]["config"]:
            raise CheckpointError(f"{path} is damaged: its run.config has no {key}")


def check_state(checkpoint: dict[str, Any], path: str) -> None:
    """Raise CheckpointError, naming the place, for a checkpoint from which no run could go on."""
    if "optimizer_states" not in checkpoint:
        raise CheckpointError(f"{path} holds weights only; to resume, name the run's folder or its latest.ckpt")
    check_places(checkpoint, STATE, path)
    check_sums(checkpoint.get("sums", {}), path)
    try:
        Version(checkpoint["pytorch-lightning_version"])
    except InvalidVersion as error:
        raise CheckpointError(f"{path} is damaged: pytorch-lightning_version: {error}") from None


def check_sums(sums: Any, path: str) -> None:
    """Raise CheckpointError unless these are the tensors of metrics, by the metric's name and their own."""
    places: dict[str, type] = {f"sums.{name}": dict for name in sums} if isinstance(sums, dict) else {}
    check_places({"sums": sums}, {"sums": dict, **places}, path)
    for name, state in sums.items():
        for key, value in state.items():
            if not hasattr(value, "shape"):
                raise CheckpointError(f"{path} is damaged: sums.{name}.{key} is {value!r:.80}, and should be a tensor")


def check_places(checkpoint: dict[str, Any], places: dict[str, type], path: str) -> None:
    for place, kind in places.items():
        value: Any = checkpoint
        for name in place.split("."):
            try:
                value = value[int(name) if name.isdigit() else name]
            except (KeyError, IndexError, TypeError):
                raise CheckpointError(f"{path} is damaged: it has no {place}") from None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CheckpointError(f"{path} is damaged: {place} is {value!r:.80}, and should be {KINDS[kind]}")


def check_like(saved: Any, own: Any, place: str) -> None:
    """Raise CheckpointError unless a saved state has every key that a fresh one has, and numbers and tensors where that
    does."""
    if isinstance(own, dict):
        missing = own.keys() - saved.keys() if isinstance(saved, dict) else own.keys()
        if missing:
            raise CheckpointError(f"the checkpoint is damaged: {place} has no {min(map(str, missing))}")
        for name, value in own.items():
            check_like(saved[name], value, f"{place}.{name}")
    elif isinstance(own, list):
        if not isinstance(saved, list) or len(saved) != len(own):
            raise CheckpointError(
                f"the checkpoint is damaged: {place} is {saved!r:.80}, and should be {len(own)} values"
            )
        for number, value in enumerate(own):
            check_like(saved[number], value, f"{place}.{number}")
    elif isinstance(own, int | float) and not isinstance(saved, int | float):
        raise CheckpointError(f"the checkpoint is damaged: {place} is {saved!r:.80}, and should be a number")
    elif hasattr(own, "shape") and not hasattr(saved, "shape"):
        raise CheckpointError(f"the checkpoint is damaged: {place} is {saved!r:.80}, and should be a tensor")
