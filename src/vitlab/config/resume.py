"""Resume a run with its saved config, and what the command line may change in it."""

from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from vitlab.config.found import OPEN_KEYS
from vitlab.config.home import CONF
from vitlab.config.nodes import escape_references
from vitlab.config.stored_config import is_movable
from vitlab.errors import ConfigError

FIXED_CHOICES = ("task", "optimizer")  # whose state means nothing to another; their values may change
FIXED = ("model", "data", "crop", "seed", "global_batch_size")


def build_resumed_config(
    saved: DictConfig, saved_choices: dict[str, str], composed: DictConfig, overrides: list[str]
) -> DictConfig:
    """Apply the overrides of the command line, whose values stand in `composed`, to the saved config.

    Raises ConfigError for an override that would make it another run: of model, data, crop, seed or global batch,
    except where and how the same data is read.
    """
    cfg = OmegaConf.create(OmegaConf.to_container(saved))
    assert isinstance(cfg, DictConfig)
    parsed = OverridesParser.create().parse_overrides(overrides)
    for override in sorted(parsed, key=lambda one: not (CONF / one.key_or_group).is_dir()):  # groups, then their values
        key = override.key_or_group
        if key == "resume":
            continue
        if key in ("recipe", "study"):
            raise ConfigError(
                f"{key}= cannot be changed with resume=, because a resumed run keeps its config; leave it out"
            )
        if (CONF / key).is_dir():
            choice = override.value()
            group = key if override.package is None else f"{key}@{override.package}"  # model@teacher
            if str(choice) == str(saved_choices.get(group)):
                continue  # the run's own choice: its saved values stand
            if key in FIXED or key in FIXED_CHOICES:
                raise _another_run(group, saved_choices.get(group), choice)
            if key == "callbacks":
                cfg.callbacks = _choose_callbacks(saved, saved_choices, composed)
            else:
                _choose(cfg, composed, key, choice)
            continue
        if override.is_delete():
            _delete(cfg, key)
            continue
        value = escape_references(_resolve(OmegaConf.select(composed, key)))
        if (
            key.split(".")[0] in FIXED
            and not is_movable(key)
            and value != escape_references(_resolve(OmegaConf.select(saved, key)))
        ):
            raise _another_run(key, OmegaConf.select(saved, key), value)
        OmegaConf.update(cfg, key, value, merge=False, force_add=True)
    for key in [key for key in cfg.get("found") or {} if key in OPEN_KEYS]:
        if OmegaConf.select(cfg, OPEN_KEYS[key]) != OmegaConf.select(saved, OPEN_KEYS[key]):
            del cfg.found[key]  # the command line has replaced it
    return cfg


def _choose(cfg: DictConfig, composed: DictConfig, group: str, choice: Any) -> None:
    """Take another option of a group, with references to the run's own values. If it builds the same thing
    (trainer=gpu), take only what its own file sets."""
    chosen = OmegaConf.to_container(composed[group], resolve=False)
    assert isinstance(chosen, dict)
    if chosen.get("_target_") is None or chosen["_target_"] != cfg[group].get("_target_"):
        cfg[group] = chosen
        return
    stated = OmegaConf.load(CONF / group / f"{choice}.yaml")
    for name in stated:
        if name in chosen:
            cfg[group][name] = chosen[name]


def _choose_callbacks(saved: DictConfig, saved_choices: dict[str, str], composed: DictConfig) -> dict[str, Any]:
    """Take the chosen callbacks, with the run's own values where it had them, and those that its task brings."""
    task = OmegaConf.to_container(OmegaConf.load(CONF / "task" / f"{saved_choices['task']}.yaml"), resolve=False)
    assert isinstance(task, dict)
    brought = [str(default).split("@")[0] for default in task.get("defaults", [])]
    kept = [name for name in saved.callbacks if name in composed.callbacks or f"/callbacks/{name}" in brought]
    chosen, own = (OmegaConf.to_container(cfg.callbacks, resolve=False) for cfg in (composed, saved))
    assert isinstance(chosen, dict)
    assert isinstance(own, dict)
    return {**chosen, **{name: own[name] for name in kept}}


def _another_run(key: str, saved: Any, given: Any) -> ConfigError:
    return ConfigError(
        f"{key} is {saved} in the run and {given} on the command line; a resumed run keeps its model, data, task, "
        "optimizer, seed and global batch size: leave it out, or start a new run"
    )


def _resolve(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _delete(cfg: DictConfig, key: str) -> None:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    if node is not None and name in node:
        del node[name]
