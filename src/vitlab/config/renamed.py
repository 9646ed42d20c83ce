"""Rename keys that had another name: in saved configs they are renamed, on a command line the user is told."""

from typing import Any

from vitlab.errors import ConfigError

ROOMS = {  # where keys of `data` have moved
    "images": {
        "_target_": "vitlab.data.Images",
        "mode": "image_mode",
        "train_crop": "train_crop",
        "eval_crop": "eval_crop",
        "train_transform": "train_transform",
    },
    "split": {
        "_target_": "vitlab.data.Splits",
        "val_fraction": "val_fraction",
        "test_fraction": "test_fraction",
        "labels_per_class": "labels_per_class",
    },
    "order": {
        "_target_": "vitlab.data.Order",
        "class_balance": "class_balance",
        "repeats": "repeats",
        "shuffle_window": "shuffle_window",
    },
    "loading": {
        "_target_": "vitlab.data.Loading",
        "num_workers": "num_workers",
        "prefetch_batches": "prefetch_batches",
        "stall_timeout": "stall_timeout",
        "on_bad_image": "on_bad_image",
    },
    "cache": {"_target_": "vitlab.data.Cache", "kind": "cache", "root": "cache_root", "size": "cache_size"},
}
NEW = {
    f"data.{old}": f"data.{room}.{new}"
    for room, keys in ROOMS.items()
    for new, old in keys.items()
    if new != "_target_"
}


GONE = {"vitlab.data.Mixing": {"num_classes"}}  # keys that constructors took once


def new_name(key: str) -> str | None:
    """Give the new name of an old key; None for any other key."""
    old = next((old for old in NEW if f"{key}.".startswith(f"{old}.") and (old != "data.cache" or key == old)), None)
    return None if old is None else NEW[old] + key.removeprefix(old)


def refuse_old(key: str) -> None:
    """Raise ConfigError for a key that has another name now."""
    if (new := new_name(key)) is not None:
        raise ConfigError(f"{key} is {new} now")


def in_rooms(data: dict[str, Any]) -> dict[str, Any]:
    """Give the data node of a saved config with today's keys."""
    if "loading" in data or "input_max_length" in data:  # data of texts never lay so
        return data
    old = {key.removeprefix("data.") for key in NEW}
    rooms = {
        room: {"_target_": keys["_target_"]}
        | {new: data[old] for new, old in keys.items() if new != "_target_" and old in data}
        for room, keys in ROOMS.items()
    }
    return {**{key: value for key, value in data.items() if key not in old}, **rooms}


def with_measured_precision(trainer: dict[str, Any]) -> dict[str, Any]:
    """Give the trainer of a sweep's job that was frozen when a resolver asked the hardware for its precision."""
    asked = str(trainer.get("precision")).startswith("${hardware_precision:")
    return {**trainer, "precision": "auto"} if asked else trainer
