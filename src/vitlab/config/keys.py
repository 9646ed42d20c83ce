"""Check the keys of a config that no constructor takes: those at its top, and groups of several nodes.

A command takes the keys and groups of its YAML in conf/, and no others: any other key, in a YAML of ours or of a
user's, is misspelt.
"""

import ast
import functools
from collections.abc import Container, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from omegaconf import DictConfig, OmegaConf

from vitlab.config.annotations import check_value, refuse_unknown_key
from vitlab.config.found import OPEN_KEYS
from vitlab.config.home import CONF
from vitlab.config.nodes import resolve_value
from vitlab.config.refusals import explain_choice
from vitlab.config.values import show_value
from vitlab.errors import ConfigError
from vitlab.ranges import Count, Natural, Positive, Range, Seed, Unsigned

Exponent = Annotated[float, Range(least=-100, most=100)]
KINDS: dict[str, Any] = {  # what the keys at the top hold; null, too, if it is the value in the command's YAML
    **dict.fromkeys(("name", "monitor", "split", "precision", "format", "on_bad_image"), str),
    **dict.fromkeys(("run", "resume", "sweep", "output", "images", "texts", "question", "index", "class_names"), str),
    **dict.fromkeys(("by", "metric", "study", "device", "share", "sort_into", "push", "chain", "config"), str),
    **dict.fromkeys(("root", "where", "sort", "archive"), str),
    **dict.fromkeys(("bundle", "host", "token_file"), str),
    "port": Annotated[int, Range(least=0, most=65_535)],
    **dict.fromkeys(("max_images", "queue", "decoders"), Count),
    **dict.fromkeys(("max_megabytes", "max_megapixels", "deadline"), Positive),
    "formats": list[str],
    **dict.fromkeys(("tf32", "activation_checkpointing", "break_lock"), bool),
    "compile": bool | Literal["reduce-overhead", "max-autotune"],
    "float8": bool | Literal["rowwise"],
    **dict.fromkeys(("overwrite", "tensors", "watch", "pictures", "rm", "export", "heat_maps"), bool),
    **dict.fromkeys(("num_images", "num_worst", "beam_width", "top_k", "batch_size", "most"), Count),
    **dict.fromkeys(("num_scored", "num_explained"), Count),
    **dict.fromkeys(("calibration_images", "threads", "segments"), Count),
    **dict.fromkeys(("shorter_side", "longest_side"), Count),
    **dict.fromkeys(("memory_gib", "temperature", "shard_size", "lowest", "highest", "minutes"), Positive),
    **dict.fromkeys(("seconds", "length_penalty", "max_drop", "tolerance"), Unsigned),
    **dict.fromkeys(("labels", "templates", "runs", "columns", "candidates"), list[str]),
    **dict.fromkeys(("k", "shots", "batch_sizes"), list[Count]),
    **dict.fromkeys(("merge", "stretch"), list[Natural]),
    "seed": Seed,
    "global_batch_size": Count | Literal["auto"],
    **dict.fromkeys(("same", "num_workers"), Natural),
    **dict.fromkeys(("views", "trust"), list[str] | str),
    "draws": Annotated[int, Range(least=1, most=10_000)],
    "find": Literal["lr", "batch_size"],
    "steps": Annotated[int, Range(least=20, most=10_000)],
    "l2_exponents": list[Exponent],
}
OPTIONAL: dict[str, dict[str, Any]] = {  # keys that may be there, and that no YAML of a command states
    "train": {
        "teacher": dict,  # of some tasks
        "found": dict,  # in a saved run: the values that null stood for
        "needed": dict,  # keys that a recipe leaves to the user, and what they hold
    },
    "pack": {"global_batch_size": KINDS["global_batch_size"]},  # of data of your own
}
LAYERS = ("recipe", "study", "debug")  # groups that state values at the top
NO_NODE = (*LAYERS, "hydra")  # groups without a node of their own in the config
COLLECTIONS = ("callbacks", "logger", "crop")  # groups of several nodes, each with a name of its own
# Keys of models that their constructors do not see.
WEIGHTS = {
    "pretrained": str | None,
    "pretrained_partial": bool,
    "pretrained_head": bool,
    "published": str | None,
}
OF_A_RUN = ("pretrained", "mean", "std", "image_size")  # keys of a teacher that is the model of a run
NEEDED = {"latest_state": "keeps the state to resume from; raise its every_n_steps to save less often"}


class Keys(NamedTuple):
    """The keys at the top of a command's config, with what each holds, and those that must be there."""

    kinds: dict[str, Any]
    required: frozenset[str]


@functools.cache
def read_keys(command: str) -> Keys:
    """Read the keys of a command from its YAML. A group whose option is null there is not required."""
    stated: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"{command}.yaml"), resolve=False)
    kinds, optional = dict(OPTIONAL.get(command, {})), set(OPTIONAL.get(command, {}))
    for default in stated.pop("defaults"):
        if isinstance(default, dict):
            groups = {key: option for key, option in default.items() if key.isidentifier() and key not in NO_NODE}
            kinds |= dict.fromkeys(groups, dict)
            optional |= {group for group, option in groups.items() if option is None}
        elif default != "_self_" and "/" not in default:  # another command, all of whose keys this one takes
            kinds |= read_keys(default).kinds
            optional |= read_keys(default).kinds.keys() - read_keys(default).required
    for key, value in stated.items():
        kinds[key] = dict if isinstance(value, dict) else KINDS[key] | None if value is None else KINDS[key]
    return Keys(kinds, frozenset(kinds.keys() - optional))


def check_keys(cfg: DictConfig, command: str) -> None:
    """Raise ConfigError for a key at the top that the command does not know, that is missing, or has another kind of
    value than it takes."""
    kinds, required = read_keys(command)
    for layer in LAYERS:
        if OmegaConf.is_dict(cfg.get(layer)):
            raise ConfigError(
                f"the first line of the {layer} is not '# @package _global_'; add it, or the keys are not read"
            )
    if missing := sorted(required - cfg.keys()):
        raise ConfigError(f"{missing[0]} has no value; set {missing[0]}=...")
    if unknown := sorted(str(key) for key in cfg if key not in kinds):
        raise refuse_unknown_key("", unknown[0], kinds)
    check_groups(cfg, command)
    for key in [key for key, kind in kinds.items() if kind is not dict and key in cfg]:
        check_value(kinds[key], resolve_value(cfg[key]), key)


def check_groups(cfg: DictConfig, command: str) -> None:
    """Raise ConfigError for a value in the place of a group's keys."""
    for group in [key for key, kind in read_keys(command).kinds.items() if kind is dict and key in cfg]:
        if not OmegaConf.is_dict(cfg[group]):
            raise ConfigError(
                f"{group} is {show_value(cfg[group])}, but must hold keys; choose an option with {group}=NAME, or "
                f"in the defaults of a recipe: override /{group}: NAME"
            )


def check_nodes(cfg: DictConfig) -> None:
    """Raise ConfigError for unknown keys in groups. The keys of a constructor are checked when it is
    called."""
    for group, node in {str(key): node for key, node in cfg.items() if isinstance(node, DictConfig)}.items():
        if group in COLLECTIONS:
            check_collection(node, group)
        elif group == "trainer":
            check_known(node, group, trainer_keys())
        elif group == "found":
            check_known(node, group, OPEN_KEYS)
        elif group == "needed":
            for place, _, name in (str(key).rpartition(".") for key in node):
                known: Any = OmegaConf.select(cfg, place) if place else cfg
                if not isinstance(known, DictConfig) or name not in known:
                    raise refuse_unknown_key(place, name, known if isinstance(known, DictConfig) else ())
        elif "_target_" not in node and not (group == "data" and cfg.get("run")):  # which changes the run's own
            check_known(node, group, OF_A_RUN if group == "teacher" else ())
        for name in WEIGHTS.keys() & node.keys() if group in ("model", "teacher") else ():
            check_value(WEIGHTS[name], node[name], f"{group}.{name}")
    for name, reason in NEEDED.items() if "callbacks" in cfg else ():
        if name not in cfg.callbacks:
            raise ConfigError(f"callbacks.{name} is missing; it {reason}")


def check_needed(cfg: DictConfig, given: Container[str]) -> None:
    """Raise ConfigError for a key that a recipe leaves to the user, and that has no value: null may be given."""
    for key, what in (cfg.get("needed") or {}).items():
        if key not in given and OmegaConf.select(cfg, key) is None:
            raise ConfigError(f"{key} has no value; set it to {what}")


def check_collection(nodes: DictConfig, group: str) -> None:
    """Raise ConfigError unless each of the nodes builds something."""
    built = [str(name) for name, node in nodes.items() if isinstance(node, DictConfig) and "_target_" in node]
    for name in map(str, nodes):
        if nodes[name] is None:
            instead = f"it {NEEDED[name]}" if name in NEEDED else f"leave it out with ~{group}.{name}"
            raise ConfigError(f"{group}.{name} is null; {instead}")
        if name not in built and (CONF / group / f"{name}.yaml").is_file():
            raise ConfigError(explain_choice(group, name))
        if name not in built:
            options = (file.stem for file in (CONF / group).glob("*.yaml")) if group == "callbacks" else ()
            raise refuse_unknown_key(group, name, {*built, *options} - {"default"})


def check_known(names: Iterable[Any], group: str, known: Any) -> None:
    for name in map(str, names):
        if not known:
            raise ConfigError(f"{group}.{name}: the chosen {group} takes no keys; choose another {group}=...")
        if name not in known:
            raise refuse_unknown_key(group, name, known)


@functools.cache
def trainer_keys() -> list[str]:
    """Read the keywords of Lightning's Trainer from its source, since importing it takes seconds."""
    package = find_spec("pytorch_lightning")
    assert package is not None
    assert package.submodule_search_locations is not None
    source = Path(package.submodule_search_locations[0], "trainer", "trainer.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return ["_target_", *(argument.arg for argument in (*node.args.args[1:], *node.args.kwonlyargs))]
    raise AssertionError("pytorch_lightning.Trainer has no constructor")
