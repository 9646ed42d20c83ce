"""Let what a recipe or study states about a group hold for the option that it chose; whoever chooses another one gets
that option's values.

Hydra merges the values of a recipe over whatever option is chosen, such as AdamW's learning rate over SGD's. So a group
for which another option is chosen is composed once more, without recipe and study.
"""

from collections.abc import Container, Iterable
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from vitlab.config.annotations import join_key
from vitlab.config.home import CONF
from vitlab.errors import ConfigError

LAYERS = ("study", "recipe")  # groups whose values are merged over those of the options, in this order
WHOLE = ("crop", "augmentation", "mixing", "resolution", "loss", "task", "optimizer", "schedule")
GROUPS = {key: key for key in WHOLE} | {"model": "model", "teacher": "model@teacher"}  # keys, and what fills them
OF_A_SIZE = {"depth", "embed_dim", "num_heads", "mlp_ratio", "mlp_dim", "patch_size", "pretrained", "published"}
Plain = dict[str, Any]


def fit(cfg: DictConfig, words: Iterable[str], loader: ConfigLoader) -> str:
    """Replace, in a config composed of `words`, what recipe and study state for options that are not chosen; return a
    note of it for the user, "" if there is nothing to say. What they do not choose themselves is meant for the options
    of conf/train.yaml. Raises ConfigError for several recipes at once."""

    def load(name: str, words: list[str]) -> DictConfig:
        return loader.load_configuration(name, [*cfg.hydra.overrides.hydra, *words], RunMode.RUN)

    given = [one for one in OverridesParser.create().parse_overrides(list(words)) if not one.is_sweep_override()]
    keys = {one.key_or_group: str(one.input_line) for one in given if "." in one.key_or_group}
    chosen = choices(cfg)
    layers = {layer: chosen[layer] for layer in LAYERS if chosen.get(layer)}
    single = (*LAYERS, "debug")
    for layer in (one.key_or_group for one in given if one.key_or_group in single and isinstance(one.value(), list)):
        raise ConfigError(f"{layer}= takes a single name, not a list; to run several, type -m {layer}=A,B")
    groups = {group.partition("@")[0] for group in (*chosen, "callbacks")} - layers.keys()
    usual = (CONF / f"{cfg.hydra.job.config_name}.yaml").is_file() and len(layers) < 2
    if not layers or (usual and groups.isdisjoint(one.key_or_group for one in given)):
        return ""
    made = {layer: load("train", [f"{layer}={name}"]) for layer, name in layers.items()}
    if any(not OmegaConf.is_dict(alone[key]) for alone in made.values() for key in GROUPS if key in alone):
        return ""  # a value in place of a group, which is refused later
    remove_callbacks(cfg, made.values(), keys)
    others = {layer: find_changed_groups(choices(alone), chosen) for layer, alone in made.items()}
    changed = {key for unlike_ones in others.values() for key in unlike_ones}
    if not changed:
        return ""
    lines = [line for key, line in keys.items() if key.partition(".")[0] in changed]
    own = load(cfg.hydra.job.config_name, [*format_choices(chosen), *lines])
    parts = {key: read_node(own, key) for key in changed if key in own}
    needed = {key: what for key, what in read_node(cfg, "needed").items() if key.partition(".")[0] not in changed}
    left = set()
    for layer, alone in made.items():
        bare = load("train", format_choices(choices(alone)))
        for key in changed:
            before = read_node(bare, key)
            stated = find_differences(read_node(alone, key), before)
            kept = select_stated(stated, before, parts.get(key, {})) if key in others[layer] else stated
            left |= {GROUPS[key]} if kept != stated else set()
            if key in parts:
                parts[key] = merge_values(parts[key], kept, key, keys)
        asked = alone.model.get("pretrained") or "model.pretrained" in read_node(alone, "needed")
        if "model" in others[layer] and asked:
            needed["model.pretrained"] = f"weights of {chosen['model']}, or to null"
    with open_dict(cfg):
        for key in (*changed, "needed"):
            cfg.pop(key, None)
        cfg.merge_with({**parts, **({"needed": needed} if needed else {})})
    lost = ", ".join(f"{group}={chosen[group]}" for group in GROUPS.values() if group in left and chosen.get(group))
    if not lost:
        return ""
    named = " and ".join(f"{layer}={name}" for layer, name in reversed(layers.items()))
    return f"{named}: what it states for other options than {lost} is left out; --cfg job shows what runs"


def remove_callbacks(cfg: DictConfig, made: Iterable[DictConfig], given: Container[str]) -> None:
    """Remove callbacks that a layer chooses and states something of, and that are not chosen here."""
    for name in [name for name, node in cfg.callbacks.items() if node is not None and "_target_" not in node]:
        stated = any("_target_" in (alone.callbacks.get(name) or ()) for alone in made)
        if stated and not any(f"callbacks.{name}.{key}" in given for key in cfg.callbacks[name]):
            with open_dict(cfg):
                del cfg.callbacks[name]


def choices(cfg: DictConfig) -> Plain:
    """Return the option, or list of options, that each group has."""
    found: Any = OmegaConf.to_container(cfg.hydra.runtime.choices)
    return {group: option for group, option in found.items() if group.partition("/")[0] != "hydra"}


def format_choices(chosen: Plain) -> list[str]:
    """Write choices as overrides, without recipe and study."""
    options = {group: option for group, option in chosen.items() if group not in LAYERS and option is not None}
    return [f"{group}={str(option).replace(' ', '')}".replace("'", "") for group, option in options.items()]


def find_changed_groups(one: Plain, other: Plain) -> list[str]:
    return [key for key, group in GROUPS.items() if one.get(group) != other.get(group)]


def read_node(cfg: DictConfig, key: str) -> Plain:
    """Return the node at a key in plain types, its references as they are written."""
    node: Any = OmegaConf.to_container(cfg, resolve=False)
    return node.get(key) or {}


def find_differences(one: Plain, other: Plain) -> Plain:
    """Return what stands in `one` and not so in `other`, at any depth."""
    found = {key: value for key, value in one.items() if key not in other or value != other[key]}
    nested = {key for key, value in found.items() if isinstance(value, dict) and isinstance(other.get(key), dict)}
    return {key: find_differences(value, other[key]) if key in nested else value for key, value in found.items()}


def select_stated(stated: Plain, before: Plain, now: Plain) -> Plain:
    """Return what is stated for the option `before` and holds for the one that is chosen `now`: for a model of the same
    kind, what is no size and the same in both; for anything else, nothing."""
    if before.get("_target_") != now.get("_target_") or not str(now.get("_target_")).startswith("vitlab.models."):
        return {}
    found = {}
    for name in stated.keys() & now.keys() - OF_A_SIZE:
        if isinstance(stated[name], dict) and isinstance(now[name], dict):
            found[name] = select_stated(stated[name], before.get(name) or {}, now[name])
        elif before.get(name) == now[name]:
            found[name] = stated[name]
    return found


def merge_values(under: Plain, over: Plain, key: str, given: Container[str]) -> Plain:
    """Merge values over others, but for the keys that the command line has given."""
    result = dict(under)
    for name, value in over.items():
        place = join_key(key, name)
        if isinstance(value, dict) and isinstance(under.get(name), dict):
            result[name] = merge_values(under[name], value, place, given)
        elif place not in given:
            result[name] = value
    return result
