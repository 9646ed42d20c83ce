"""Bring a config into a checkpoint, and out of one, which may be anybody's."""

from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.atomic_files import compute_digest, format_json
from vitlab.config.annotations import check_types
from vitlab.config.build import find_nodes, import_target, is_trusted
from vitlab.config.keys import check_groups, check_nodes
from vitlab.config.nodes import (
    convert_unresolved,
    escape_references,
    find_texts,
    flatten,
    list_resolvers,
    remove_keys,
    resolve_config,
    resolve_value,
)
from vitlab.config.refusals import explain_omegaconf_error, get_first_line
from vitlab.config.resolvers import before_crop, together
from vitlab.config.trust import check_trust
from vitlab.errors import CheckpointError, ConfigError
from vitlab.monitors import better

# resolvers that a saved config may call: which way a metric is better, and sizes of what was found in the data
HARMLESS = frozenset(function.__name__ for function in (better, before_crop, together))

ADDED: dict[str, dict[str, Any]] = {  # keys that constructors did not always take, as older runs had them in effect
    "vitlab.callbacks.LatestState": {"keep_states": 0},
    "vitlab.distributed.data_parallel.DataParallel": {
        "bucket_mb": 25,
        "gradient_as_bucket_view": False,
        "static_graph": False,
        "compression": "none",
    },
    "vitlab.distributed.fully_sharded.FullySharded": {
        "reshard_after_forward": True,
        "gather_bf16": False,
        "reduce_once": False,
    },
    "vitlab.loggers.WeightsAndBiases": {"artifacts": False, "upload_minutes": 10},
}
OF_A_SWEEP = ("sweep", "engine")  # keys of how a sweep is run
OF_A_START = (
    "resume",
    "break_lock",
    "logger",
    "needed",
    "trust",
    *OF_A_SWEEP,
)  # keys that each start sets anew
OF_DEVICES = ("accelerator", "devices", "strategy", "num_nodes")  # keys of the trainer
MOVABLE = (
    "data.loading",
    "data.device_batch_size",
    "data.cache.root",
    "data.source.root",
    "data.source.file",
    "data.source.val_file",
    "data.source.test_file",
    "data.source.images",
    "data.source.labels",
    "data.source.tokenizer",
    "data.source.input.tokenizer",
    "data.source.target.tokenizer",
    "data.source.index_root",
    "data.source.allow_outside",
)


def make_portable(cfg: DictConfig) -> dict[str, Any]:
    """Give a config as plain types. References between its keys (${optimizer.lr}) stay, so that a later override
    reaches all who read them, and so do calls of `HARMLESS` resolvers; all else is resolved: time, environment."""

    def resolve(node: Any, name: Any, written: Any) -> Any:
        if isinstance(written, dict):
            return {key: resolve(node[name], key, item) for key, item in written.items()}
        if isinstance(written, list):
            return [resolve(node[name], number, item) for number, item in enumerate(written)]
        if isinstance(written, str) and set(list_resolvers(written)) - HARMLESS:
            return escape_references(resolve_value(node[name]))
        return written

    container = OmegaConf.to_container(cfg, resolve=False, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(name): resolve(cfg, name, written) for name, written in container.items()}


def parse_saved_config(config: dict[str, Any], origin: str) -> DictConfig:
    """Read a config out of a checkpoint, with the keys that older runs lack.

    Raises ConfigError for a call of another resolver than the `HARMLESS` ones, which could read a secret from the
    environment: no config is saved with one. Raises CheckpointError for what is no config, or refers to what does not
    exist.
    """
    try:
        if not isinstance(config, dict):
            raise CheckpointError(f"the config in {origin} is a {type(config).__name__}, not keys with values")
        for text in find_texts(config):
            if others := sorted(set(list_resolvers(text)) - HARMLESS):
                raise ConfigError(
                    f"the config in {origin} calls a resolver, ${{{others[0]}:...}}, which a saved config may not "
                    "contain"
                )
        if not isinstance(found := config.get("found") or {}, dict):
            raise CheckpointError(f"the config in {origin} is damaged: found is a {type(found).__name__}, not keys")
        cfg: DictConfig = OmegaConf.create(add_keys(config))
        resolve_value(cfg)  # every reference leads to a value
    except RecursionError as error:
        raise CheckpointError(f"the config in {origin} cannot be read: {get_first_line(error)}") from error
    except OmegaConfBaseException as error:
        raise CheckpointError(f"the config in {origin} cannot be read: {explain_omegaconf_error(error)}") from error
    return cfg


def add_keys(value: Any) -> Any:
    """Return a saved config with the keys of `ADDED`."""
    if not isinstance(value, dict):
        return value
    added = ADDED.get(str(value.get("_target_")), {})
    return {name: add_keys(inner) for name, inner in value.items()} | {k: v for k, v in added.items() if k not in value}


def read_saved_config(checkpoint: dict[str, Any], path: str, *, begun: bool = True) -> DictConfig:
    """Read the config in a checkpoint. One whose run has not `begun` leaves to be found what null and auto mean. Raises
    CheckpointError for values that no run can have had, and ConfigError for code that is not trusted."""
    config = parse_saved_config(checkpoint["run"]["config"], path)
    check_trust(convert_unresolved(config), path)
    try:
        check_groups(config, "train")
        check_nodes(config)
        for place, part in find_nodes(resolve_config(config), "config") if begun else ():
            if is_trusted(part["_target_"]):  # `build` refuses others
                check_types(import_target(part["_target_"], place), part, place)
    except (ConfigError, OmegaConfBaseException) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    return config


def config_digest(cfg: DictConfig) -> str:
    """Return the digest of a config without what another start may change: devices, strategy, places of data,
    loggers."""
    config = make_portable(remove_keys(cfg, ("hydra",)))
    return compute_digest(format_json({key: value for key, value in flatten(config) if not is_machine_key(key)}))


def is_machine_key(key: str) -> bool:
    """Whether a start on another machine may change the key of a run."""
    group, _, rest = key.partition(".")
    return group in OF_A_START or is_movable(key) or (group == "trainer" and rest.partition(".")[0] in OF_DEVICES)


def is_movable(key: str) -> bool:
    """Whether the key only says where and how the same data is read."""
    return any(key == place or key.startswith(f"{place}.") for place in MOVABLE)
