"""List the keys of each command's config: those at its top with their types, and its groups.

Nothing else is read, so that any other key, in a YAML of ours or of a user's, is misspelt.
"""

import ast
import functools
from collections.abc import Container, Iterable
from dataclasses import MISSING, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf

from vitlab.config.annotations import check_annotations, check_value, shown, unknown_key
from vitlab.config.found import PLACES
from vitlab.config.home import CONF
from vitlab.config.refusals import not_chosen
from vitlab.errors import ConfigError
from vitlab.ranges import Count, Natural, Positive, Range, Seed, Unsigned

Exponent = Annotated[float, Range(least=-100, most=100)]
Batch = Count | Literal["auto"]


@dataclass(kw_only=True)
class Train:
    name: str
    seed: Seed
    monitor: str
    global_batch_size: Batch
    compile: bool
    float8: bool
    activation_checkpointing: bool
    sweep: str | None
    resume: str | None
    break_lock: bool
    model: dict
    crop: dict
    data: dict
    augmentation: dict
    mixing: dict
    resolution: dict
    loss: dict
    task: dict
    optimizer: dict
    schedule: dict
    trainer: dict
    callbacks: dict
    logger: dict
    engine: dict
    teacher: dict | None = None  # only with tasks that have one
    found: dict | None = None  # in a saved run: the values that null stood for
    needed: dict | None = None  # keys that a recipe leaves to the user, and what they hold


@dataclass(kw_only=True)
class Preview(Train):
    num_images: Count
    same: Natural
    output: str | None
    overwrite: bool


@dataclass(kw_only=True)
class Check(Train):
    memory_gib: Positive | None
    seconds: Unsigned


@dataclass(kw_only=True)
class Evaluate:
    run: str
    split: str
    output: str | None
    overwrite: bool
    num_worst: Count
    beam_width: Count | None
    length_penalty: Unsigned | None
    templates: list[str] | None
    data: dict
    trainer: dict


@dataclass(kw_only=True)
class Predict:
    run: str
    images: str | None
    texts: str | None
    top_k: Count
    question: str | None
    labels: list[str] | None
    templates: list[str] | None
    beam_width: Count | None
    length_penalty: Unsigned | None
    batch_size: Count
    output: str | None
    overwrite: bool
    on_bad_image: str


@dataclass(kw_only=True)
class Visualize:
    run: str
    images: str | None
    texts: str | None
    question: str | None
    num_images: Count
    views: list[str] | str | None
    output: str | None
    overwrite: bool


@dataclass(kw_only=True)
class Export:
    run: str
    format: str
    output: str
    overwrite: bool


@dataclass(kw_only=True)
class Frozen:
    """A model to look at, and images to look at it with."""

    run: str | None
    batch_size: Count
    precision: str
    global_batch_size: Batch
    seed: Seed
    crop: dict
    model: dict | None = None
    data: dict | None = None


@dataclass(kw_only=True)
class Features(Frozen):
    output: str
    overwrite: bool
    split: str


@dataclass(kw_only=True)
class Probe(Frozen):
    k: list[Count]
    temperature: Positive
    shots: list[Count]
    draws: Annotated[int, Range(least=1, most=10_000)]
    l2_exponents: list[Exponent]
    output: str | None
    overwrite: bool


@dataclass(kw_only=True)
class Summary:
    precision: str
    activation_checkpointing: bool
    memory_gib: Positive
    tensors: bool
    global_batch_size: Batch
    seed: Seed
    model: dict
    crop: dict
    data: dict
    optimizer: dict


@dataclass(kw_only=True)
class Survey:
    output: str | None
    overwrite: bool
    global_batch_size: Batch
    seed: Seed
    model: dict
    crop: dict
    data: dict


@dataclass(kw_only=True)
class Sweeps:
    sweep: str | None
    watch: bool
    pictures: bool


@dataclass(kw_only=True)
class Pack:
    output: str | None
    shard_size: Positive
    shorter_side: Count | None
    longest_side: Count | None
    index: str | None
    class_names: str | None
    crop: dict
    data: dict
    global_batch_size: Batch = "auto"  # what data of your own brings; none is made


COMMANDS = {
    one.__name__.lower(): one
    for one in (
        *(Train, Check, Preview, Evaluate, Predict, Visualize, Export, Features),
        *(Probe, Summary, Survey, Pack, Sweeps),
    )
}
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


def check_keys(cfg: DictConfig, command: str) -> None:
    """Raise ConfigError for a key at the top that the command does not know, that is missing, or has another kind of
    value than it takes."""
    for layer in ("recipe", "study"):
        if layer in cfg:
            raise ConfigError(f"the first line of the {layer} is not '# @package _global_', so that nobody reads it")
    for field in fields(COMMANDS[command]):
        if field.default is MISSING and field.name not in cfg:
            raise ConfigError(f"{field.name} has no value; set {field.name}=...")
    check_groups(cfg, command)
    check_annotations(COMMANDS[command], cfg, "")


def check_groups(cfg: DictConfig, command: str) -> None:
    """Raise ConfigError for a value in the place of a group's keys."""
    for group in [field.name for field in fields(COMMANDS[command]) if field.type is dict and field.name in cfg]:
        if not OmegaConf.is_dict(cfg[group]):
            raise ConfigError(
                f"{group} is {shown(cfg[group])}, and holds keys; an option of it is chosen by {group}=NAME, or in the "
                f"defaults of a recipe: override /{group}: NAME"
            )


def check_nodes(cfg: DictConfig) -> None:
    """Raise ConfigError for keys in groups that nobody reads. The keys of a constructor are checked when it is
    called."""
    for group, node in {str(key): node for key, node in cfg.items() if isinstance(node, DictConfig)}.items():
        if group in COLLECTIONS:
            check_collection(node, group)
        elif group == "trainer":
            check_known(node, group, trainer_keys())
        elif group == "found":
            check_known(node, group, PLACES)
        elif group == "needed":
            for place, _, name in (str(key).rpartition(".") for key in node):
                known: Any = OmegaConf.select(cfg, place) if place else cfg
                if not isinstance(known, DictConfig) or name not in known:
                    raise unknown_key(place, name, known if isinstance(known, DictConfig) else ())
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
            instead = f"it {NEEDED[name]}" if name in NEEDED else f"leave it out by ~{group}.{name}"
            raise ConfigError(f"{group}.{name} is null; {instead}")
        if name not in built and (CONF / group / f"{name}.yaml").is_file():
            raise ConfigError(not_chosen(group, name))
        if name not in built:
            options = (file.stem for file in (CONF / group).glob("*.yaml")) if group == "callbacks" else ()
            raise unknown_key(group, name, {*built, *options} - {"default"})


def check_known(names: Iterable[Any], group: str, known: Any) -> None:
    for name in map(str, names):
        if not known:
            raise ConfigError(f"{group}.{name}: the chosen {group} takes no keys; choose another {group}=...")
        if name not in known:
            raise unknown_key(group, name, known)


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
