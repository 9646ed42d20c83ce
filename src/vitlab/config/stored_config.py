"""Bring a config into a checkpoint, and out of one, which may be anybody's."""

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.config.annotations import as_plain, check_kinds
from vitlab.config.build import allowed_targets, parts
from vitlab.config.build import called as object_called
from vitlab.config.found import with_found
from vitlab.config.keys import check_groups, check_nodes
from vitlab.config.references import called, check_references, literal
from vitlab.config.refusals import first_line
from vitlab.config.renamed import GONE, in_rooms
from vitlab.config.resolvers import before_crop, better, hardware_precision, together
from vitlab.errors import CheckpointError, ConfigError

ADDED: dict[str, dict[str, Any]] = {  # keys that constructors did not always take
    "vitlab.models.VisionTransformer": {"drop_path_shape": "linear", "pre_norm": False},
    "vitlab.models.DistilledVisionTransformer": {"drop_path_shape": "linear", "pre_norm": False},
    "vitlab.models.TextEncoder": {"causal": False},
    "vitlab.callbacks.LatestState": {"every_n_minutes": None, "keep_every_n_steps": None, "copy_to": None},
    "vitlab.data.Folder": {"allow_outside": True},
    "vitlab.data.ImageNet": {"allow_outside": True},
    "vitlab.data.Listing": {
        "allow_outside": True,
        "allow_two_labels": True,
        **dict.fromkeys(("text_column", "question_column", "characters", "tokenizer")),
        "special_tokens": ["<s>", "</s>", "<pad>"],
        "begin_token": False,
    },
}
ADDED_AT_THE_TOP = {"float8": False}  # top-level keys that are newer than some runs
# resolvers that a saved config may call: which way a metric is better, and sizes of what was found in the data
HARMLESS = frozenset(function.__name__ for function in (better, before_crop, together))
OF_THE_MACHINE = HARMLESS | {hardware_precision.__name__}  # and one that runs on a machine still to be found


def portable(cfg: DictConfig, calls: frozenset[str] = HARMLESS) -> dict[str, Any]:
    """Give a config as plain types. References between its keys (${optimizer.lr}) stay, so that a later override
    reaches all who read them, and so do these `calls` of resolvers; all else is resolved: time, machine, environment.
    """

    def walk(node: Any, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(node._get_node(name), item) for name, item in value.items()}
        if isinstance(value, list):
            return [walk(node._get_node(number), item) for number, item in enumerate(value)]
        if isinstance(value, str) and set(called(value)) - calls:
            return literal(as_plain(OmegaConf.select(cfg, node._get_full_key(None))))
        return value

    container = OmegaConf.to_container(cfg, resolve=False, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(name): walk(cfg._get_node(name), value) for name, value in container.items()}


def from_saved(config: dict[str, Any], origin: str, calls: frozenset[str] = HARMLESS) -> DictConfig:
    """Read a config out of a checkpoint. Keys that older runs lack get the value that they had in effect.

    Raises ConfigError for a call of another resolver than these, which could read a secret from the environment: no
    config is saved with one. Raises CheckpointError for what is no config, or refers to what does not exist.
    """
    try:
        if not isinstance(config, dict):
            raise CheckpointError(f"the config in {origin} is a {type(config).__name__}, not keys with values")
        for text in texts(config):
            if others := sorted(set(called(text)) - calls):
                raise ConfigError(
                    f"the config in {origin} calls a resolver, ${{{others[0]}:...}}, which no saved config does"
                )
        if isinstance(config.get("data"), dict):
            config = {**config, "data": in_rooms(config["data"])}
        found = config.get("found") or {}
        if not isinstance(found, dict):
            raise CheckpointError(f"the config in {origin} is damaged: found is a {type(found).__name__}, not keys")
        cfg = with_found(OmegaConf.create({**ADDED_AT_THE_TOP, **config}), found)
        check_references(cfg, deep=True)
        for _, node in parts(cfg, "config"):
            for key, value in ADDED.get(node["_target_"], {}).items():
                if key not in node:
                    node[key] = value
            for key in GONE.get(node["_target_"], set()) & node.keys():
                del node[key]
    except (OmegaConfBaseException, RecursionError) as error:
        raise CheckpointError(f"the config in {origin} cannot be read: {first_line(error)}") from error
    return cfg


def saved_config(checkpoint: dict[str, Any], path: str, *, begun: bool = True) -> DictConfig:
    """Read the config in a checkpoint. One whose run has not `begun` leaves to be found what null and auto mean, and
    may ask the machine. Raises CheckpointError for values that no run can have had."""
    config = from_saved(checkpoint["run"]["config"], path, HARMLESS if begun else OF_THE_MACHINE)
    try:
        check_groups(config, "train")
        check_nodes(config)
        for place, part in parts(config, "config") if begun else ():
            if part["_target_"] in allowed_targets():  # `build` refuses others
                check_kinds(object_called(part["_target_"], place), part, place)
    except (ConfigError, OmegaConfBaseException) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    return config


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in plain types."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)
