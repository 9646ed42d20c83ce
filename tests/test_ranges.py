"""Every number that a YAML sets has a range, and what is out of it is refused before anything is built."""

import functools
import typing
from collections.abc import Sequence

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from pytorch_lightning import Trainer
from test_configs import unresolved
from test_misspelt_keys import whole

from vitlab.config.annotations import accepts, check_types, describe, get_hints, members
from vitlab.config.build import build, find_nodes, import_target, project_targets
from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.keys import WEIGHTS
from vitlab.config.nodes import convert_unresolved, flatten, make_node, resolve_value
from vitlab.errors import ConfigError
from vitlab.ranges import Range

TARGETS = sorted(project_targets())
NO_NUMBERS = [float("nan"), float("inf"), -float("inf"), "", "abc"]


def without_range(hint):
    """Whether an annotation admits a number of any size, also one in a list."""
    if typing.get_origin(hint) is typing.Annotated:
        return not any(isinstance(extra, Range) for extra in typing.get_args(hint)[1:])
    inside = typing.get_args(hint) if typing.get_origin(hint) in (list, Sequence, tuple) else ()
    return hint in (int, float) or any(without_range(one) for part in inside for one in members(part))


def nodes(value):
    """Every node with a _target_ in plain types."""
    if isinstance(value, dict) and "_target_" in value:
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(item)


def set_in_yamls():
    """Keywords by the constructors that a YAML of ours sets them for."""
    found = {}
    for file in (*CONF.rglob("*.yaml"), *EXPERIMENTS.rglob("*.yaml")):
        for node in nodes(OmegaConf.to_container(OmegaConf.load(file))):
            found.setdefault(node["_target_"], set()).update(map(str, node))
    return found


def test_every_number_of_a_constructor_has_a_range():
    given, without = set_in_yamls(), []
    for target in TARGETS:
        hints = get_hints(import_target(target, target))
        names = hints.keys() if target.startswith("vitlab.") else hints.keys() & given[target]
        without += [(target, name) for name in names - {"return"} if any(map(without_range, members(hints[name])))]
    assert without == []


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_no_number_is_refused_in_words(target):
    for name, hint in get_hints(import_target(target, target)).items():
        if any(typing.get_origin(one) is typing.Annotated for one in members(hint)):
            for value in NO_NUMBERS:
                if value == "abc" and accepts(hint, value):
                    continue
                with pytest.raises(ConfigError, match=f"^key.{name} .* is not "):
                    check_types(import_target(target, target), {name: value}, "key")


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (typing.Annotated[int, Range(least=1)], "a whole number of at least 1"),
        (typing.Annotated[float, Range(least=0, below=1)] | None, "a number of at least 0 and below 1 or null"),
        (typing.Annotated[float, Range(above=0, most=1)], "a number above 0 and at most 1"),
        (typing.Annotated[int, Range(least=0, most=4)], "a whole number from 0 to 4"),
        (
            tuple[typing.Annotated[float, Range(above=0)], typing.Annotated[float, Range(above=0)]],
            "a list of 2 numbers above 0",
        ),
    ],
)
def test_a_range_is_said_in_words(hint, words):
    assert describe(hint) == words


def test_whole_numbers_become_fractions_where_these_are_taken():
    node = OmegaConf.create(
        {"_target_": "vitlab.data.Mixing", "rate": 1, "cutmix_rate": 0, "mixup_alpha": 1, "cutmix_alpha": 2}
    )
    mixing = build(node, "mixing")
    assert type(mixing.rate) is float
    images, shares = torch.rand(4, 1, 8, 8), torch.eye(4)
    assert mixing(images, shares, seed=0)[0].shape == images.shape
    limits = check_types(Trainer, {"limit_train_batches": 1, "gradient_clip_val": 1, "max_epochs": 1}, "trainer")
    assert {name: type(value) for name, value in limits.items()} == {
        "limit_train_batches": int,
        "gradient_clip_val": float,
        "max_epochs": int,
    }


# -- what a constructor makes of any value

IMAGES = {"data.image_size": 32, "data.in_chans": 3, "data.num_classes": 2}  # where a YAML leaves them open
TEXTS = {"data.vocab_size": 13, "data.max_length": 6, "data.input_vocab_size": 33, "data.input_max_length": 8}
EDGES = [-1, 0, float("nan"), 1e9, "", [], None]


@functools.cache
def nodes_of_yamls():
    """A node for each constructor that an option of ours names, its references resolved in the default config."""
    contents = {file: yaml.safe_load(file.read_text()) or {} for file in CONF.glob("*/*.yaml")}
    default, found = convert_unresolved(unresolved("train")), {}
    for file in sorted(contents):
        group = file.parent.name
        if group != "hydra" and not file.stem.startswith("_"):
            cfg = OmegaConf.create(default | {group: whole(file, contents)})
            for key, value in (IMAGES | TEXTS).items():
                if OmegaConf.select(cfg, key, throw_on_missing=False) is None:
                    OmegaConf.update(cfg, key, value)
            for key in [key for key, value in flatten(convert_unresolved(cfg[group])) if value == "???"]:
                OmegaConf.update(cfg[group], key, "somewhere.tsv")
            found |= {node["_target_"]: node for _, node in find_nodes(resolve_value(cfg[group]), group)}
    survey = unresolved("survey", "model=vit_mu4", "data=digits")  # the command that has a target of its own
    found |= {node["_target_"]: node for _, node in find_nodes(resolve_value(survey.data.split), "data.split")}
    return {target: without_weights(node) for target, node in found.items()}


def without_weights(node):
    """A node of plain types without the keys that no constructor sees."""
    if isinstance(node, dict):
        return {key: without_weights(value) for key, value in node.items() if key not in WEIGHTS}
    return [without_weights(item) for item in node] if isinstance(node, list) else node


def holds_number(hint):
    return typing.get_origin(hint) is typing.Annotated or any(
        holds_number(one) for part in typing.get_args(hint) if hint not in (None, ...) for one in members(part)
    )


def outcome(node):
    """What comes of building a node: None, or its refusal. Models have no memory; what a run gives is left out."""
    runtime = {"num_steps": 100} if node["_target_"].startswith("vitlab.optim.") else {}
    try:
        with torch.device("meta"):
            build(make_node(node), "key", **runtime)
    except ConfigError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("target", TARGETS)
def test_each_number_is_refused_in_a_sentence_or_builds(target, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    node = nodes_of_yamls()[target]
    for name in [name for name, hint in get_hints(import_target(target, target)).items() if holds_number(hint)]:
        for value in EDGES:
            refusal = outcome({**node, name: value})
            assert refusal is None or ("\n" not in refusal and refusal.startswith("key")), (name, value, refusal)
        for value in ("", float("nan")):  # no number of ours
            assert outcome({**node, name: value}), (name, value)
