"""Let what a recipe or study says about a group hold for the option it chose; whoever chooses another gets that one's
values.

Hydra would merge these values over any option. So they are taken out of a recipe or study when it is read, and the last
of the defaults in conf/train.yaml, which Hydra looks up once all options are chosen, brings back those that fit.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.config.outline import outline
from vitlab.errors import ConfigError

LAYERS = ("study", "recipe")  # groups whose values are merged over those of the options, in this order
WHOLE = ("crop", "augmentation", "mixing", "resolution", "loss", "task", "optimizer", "schedule")
MODELS = {"model": "model", "teacher": "model@teacher"}  # an option replaces the sizes together, and keeps the rest
GROUPS = {group: group for group in WHOLE} | MODELS  # the key in the config that holds each group's values
PARTS = {*GROUPS, "callbacks", "needed"}  # keys of a layer that go with choices; data, trainer and logger keep theirs
OF_A_SIZE = {"mlp_ratio", "mlp_dim", "pretrained", "published"}  # keys of all models that no other size keeps
FITTING = "fitting/"  # the name of the config of fitting values begins so; the choices follow


def fitting_name(choices: Mapping[str, Any]) -> str:
    """Name the config that holds what study and recipe say for these choices: for each group an option, or a list of
    them."""
    groups = (*LAYERS, *GROUPS.values(), "callbacks") if any(choices.get(layer) for layer in LAYERS) else ()
    return FITTING + json.dumps({group: choices[group] for group in groups if choices.get(group)})


def fitting_config(name: str, folders: Sequence[str]) -> DictConfig:
    """Make the config of that name."""
    return fitting_values(json.loads(name.removeprefix(FITTING)), folders)[0]


def left_out(choices: Mapping[str, Any], folders: Sequence[str]) -> str:
    """Tell the user which values do not fit the choices."""
    chosen = [f"{group}={choices[group]}" for group in fitting_values(choices, folders)[1] if choices.get(group)]
    layers = [f"{layer}={choices[layer]}" for layer in reversed(LAYERS) if choices.get(layer)]
    told = f"{' and '.join(layers)} chose otherwise, so that what it states for these is left out: {', '.join(chosen)}"
    return f"{told}; --cfg job shows what holds" if chosen else ""


def is_layer(config: str) -> bool:
    """Whether a config of this name is a study or recipe, or the base of one."""
    return config.partition("/")[0] in LAYERS


def split(layer: Any) -> tuple[DictConfig, dict[str, Any]]:
    """Divide a study or recipe into what holds for all choices, and the parts that go with some."""
    parts = {key for key in PARTS & layer.keys() if OmegaConf.is_dict(layer._get_node(key))}
    rest: Any = OmegaConf.masked_copy(layer, [key for key in layer if key not in parts])
    whole: Any = OmegaConf.to_container(layer)
    return rest, {key: whole[key] for key in parts}


def fitting_values(choices: Mapping[str, Any], folders: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """Give the values of study and recipe that fit the choices, and the groups where some do not.

    What a layer says about a group is meant for the option that it chooses itself, or else for the one chosen without
    the command line. A model of the same kind keeps what is said beside its own file, such as positions and pooling,
    and needs weights where the other had some; callbacks that are gone leave nothing. Raises ConfigError for a layer
    that is a list, or lies in no folder.
    """
    values, left = [OmegaConf.create()], set[str]()
    layers = {layer: choices[layer] for layer in LAYERS if choices.get(layer)}
    usual = dict(layers)
    brought = callbacks(usual, folders) if layers else set()
    for layer, name in layers.items():
        if not isinstance(name, str):
            raise ConfigError(f"{layer}= takes one, and was given a list; for one after the other use -m {layer}=A,B")
        own: dict[str, Any] = {}
        files = [file for part, file in outline(f"{layer}/{name}", own, folders).items() if is_layer(part)]
        if not files:
            raise ConfigError(
                f"{layer}={name} is not a file, and is read from files alone; give its folder: --config-dir=DIR"
            )
        _, stated = split(OmegaConf.merge(*map(OmegaConf.load, files)))
        meant = usual | own
        others = {key for key, group in GROUPS.items() if meant.get(group) != choices.get(group)}
        fitting = {key: part for key, part in stated.items() if key not in others}
        for key in others & MODELS.keys() & stated.keys():
            fitting[key] = beside(stated[key], meant.get(MODELS[key]), choices.get(MODELS[key]), folders)
        gone = brought - callbacks(dict(choices), folders) if "callbacks" in stated else set()
        fitting["callbacks"] = {name: one for name, one in stated.get("callbacks", {}).items() if name not in gone}
        needed = stated.get("needed", {})
        fitting["needed"] = {key: what for key, what in needed.items() if key.partition(".")[0] not in others}
        if "model" in others and (stated.get("model", {}).get("pretrained") or "model.pretrained" in needed):
            fitting["needed"]["model.pretrained"] = f"weights of {choices['model']}, or to null"
        left |= {GROUPS[key] for key in others if fitting.get(key) != stated.get(key)}
        values.append(OmegaConf.create({key: part for key, part in fitting.items() if part}))
    merged: Any = OmegaConf.merge(*values)
    return merged, [group for group in GROUPS.values() if group in left]


def beside(stated: dict[str, Any], meant: str | None, chosen: str | None, folders: Sequence[str]) -> dict[str, Any]:
    """Give what is said for one model and holds for another: nothing if that is of another kind, or none."""
    (kind, _), (other, keys) = own_keys(meant, folders), own_keys(chosen, folders)
    return without(stated, keys | OF_A_SIZE) if kind and kind == other else {}


def without(part: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    """Copy a part without these keys, at any depth."""
    kept = {key: value for key, value in part.items() if key not in keys}
    return {key: without(value, keys) if isinstance(value, dict) else value for key, value in kept.items()}


def own_keys(model: str | None, folders: Sequence[str]) -> tuple[Any, set[str]]:
    """Give what a model's option builds, and the keys that it sets on top of its base files, whose names begin with
    _."""
    kind, keys = None, set[str]()
    for file in outline(f"model/{model}", {}, folders).values():
        content: Any = OmegaConf.load(file)
        kind = content.get("_target_", kind)
        keys |= set() if file.stem.startswith("_") else content.keys()
    return kind, keys


def callbacks(chosen: dict[str, Any], folders: Sequence[str]) -> set[str]:
    """List the callbacks that are chosen, or that a chosen option brings."""
    return {file.stem for name, file in outline("train", chosen, folders).items() if name.startswith("callbacks/")}
