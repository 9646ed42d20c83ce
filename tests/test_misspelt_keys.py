"""A misspelt key in any YAML of ours is noticed, one key of one file at a time, and as it stands each file is taken."""

import copy
from functools import reduce
from operator import getitem

import pytest
import yaml
from hydra.utils import get_object
from omegaconf import open_dict
from test_configs import NEEDED, RUNTIME, composed, runtime, unresolved

from vitlab.commands import COMMANDS
from vitlab.config.annotations import check_names, keywords
from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.keys import COLLECTIONS, OF_A_RUN, WEIGHTS, check_keys, check_nodes
from vitlab.errors import ConfigError

NO_NODES = ("hydra", "debug")  # groups that build nothing: tests/test_debug.py composes those of debug
OPTIONS = [f for f in sorted(CONF.glob("*/*.yaml")) if f.parent.name not in NO_NODES]
EMPTY = {"none", "full"}  # options that choose nothing
NAMED_BY_THE_USER = {"splits", "images", "labels"}  # mappings whose keys are anything
OF_HYDRA = {"defaults", "_partial_", "_args_", "hydra"}  # it reads them itself


@pytest.fixture(scope="module")
def contents():
    return {file: yaml.safe_load(file.read_text()) or {} for file in OPTIONS}


def test_every_option_is_taken_as_it_stands(contents):
    """Else its keys would be noticed for nothing: a room that RUNTIME lacks is found here."""
    assert not {name(file): why for file in OPTIONS if is_option(file) and (why := refused(file, contents))}


def test_a_misspelt_key_in_an_option_is_noticed(contents):
    quiet = []
    for file in OPTIONS:
        users = [other for other in OPTIONS if is_option(other) and file in (other, *inherited(other, contents))]
        named = 1 if file.parent.name in ("callbacks", "logger") else 0  # by a name that anybody may choose
        for path in (path for path in keys(contents[file]) if len(path) > named):
            changed = contents | {file: misspelt(contents[file], path)}
            noticed = path[0] in OF_A_RUN if file.stem == "_of_run" else refused(users[0], changed)
            if not noticed:
                quiet.append((name(file), ".".join(path)))
    assert not quiet


def test_a_constructor_that_is_not_known_is_found(contents, monkeypatch):
    """The control: without what the run gives to it, what names it is not taken as it stands."""
    for target in list(RUNTIME):
        with monkeypatch.context() as patch:
            patch.delitem(RUNTIME, target)
            users = [file for file in OPTIONS if is_option(file) and target in str(contents[file])]
            assert users, target
            assert any(refused(file, contents) for file in users), target


def name(file):
    return f"{file.parent.name}/{file.name}"


def is_option(file):
    return file.stem[0] != "_" and file.stem not in EMPTY


def keys(node, above=()):
    """The path of every key of ours in a nested dict."""
    for key, value in node.items():
        if key not in OF_HYDRA:
            yield (*above, key)
            if isinstance(value, dict) and key not in NAMED_BY_THE_USER:
                yield from keys(value, (*above, key))


def misspelt(node, path):
    """A copy in which the key at `path` has another letter."""
    changed = copy.deepcopy(node)
    *above, last = path
    inner = changed
    for key in above:
        inner = inner[key]
    inner[f"{last}x"] = inner.pop(last)
    return changed


def bases(file, contents):
    """The files beside it that its defaults name, each with the key that it goes below, if any."""
    for entry in contents[file].get("defaults", []):
        if isinstance(entry, str) and not entry.startswith("/") and entry not in ("_self_", "_open"):
            base, _, key = entry.partition("@")
            yield file.parent / f"{base}.yaml", key


def inherited(file, contents):
    for base, _ in bases(file, contents):
        yield from (base, *inherited(base, contents))


def whole(file, contents):
    """A YAML with what it inherits."""
    merged = {}
    for base, key in bases(file, contents):
        below = whole(base, contents)
        for part in reversed(key.split(".") if key else []):
            below = {part: below}
        merged = laid_over(merged, below)
    return laid_over(merged, {key: value for key, value in contents[file].items() if key != "defaults"})


def laid_over(below, node):
    """Two nested dicts as one, the second over the first."""
    both = {
        k: laid_over(below[k], v) if isinstance(below.get(k), dict) and isinstance(v, dict) else v
        for k, v in node.items()
    }
    return below | both


def refused(file, contents):
    """Why a YAML is not taken; None where it is."""
    node, group = whole(file, contents), file.parent.name
    if group not in COLLECTIONS:
        return refused_node(node)
    if group == "crop" and node.keys() != {"train", "eval"}:
        return f"a crop has train and eval, not {sorted(node)}"
    if not all(isinstance(part, dict) and "_target_" in part for part in node.values()):
        return "what has no _target_ is nothing"
    return next(filter(None, map(refused_node, node.values())), None)


def refused_node(node):
    if "_target_" not in node:
        return "there is no _target_"
    try:
        target = get_object(node["_target_"])
    except Exception as error:
        return str(error)
    if "_args_" in node:
        return None
    parameters = keywords(target)
    if parameters is None:
        return None
    given = node.keys() - {"_target_", "_partial_"}
    needed = WEIGHTS.keys() - (set() if "num_classes" in node else {"pretrained_head"})  # a head for classes
    if node["_target_"].startswith("vitlab.models.") and not given >= needed:
        return f"{node['_target_']} has no {sorted(needed - given)}"
    given -= WEIGHTS.keys() if node["_target_"].startswith("vitlab.models.") else set()
    wanted = {name for name, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL}
    given |= runtime(node["_target_"]) & parameters.keys()
    if given - parameters.keys() or wanted - given:
        return f"{node['_target_']}: unknown {sorted(given - parameters.keys())}, missing {sorted(wanted - given)}"
    below = [value for key, value in node.items() if key not in NAMED_BY_THE_USER]
    inner = [item for value in below for item in (value if isinstance(value, list) else [value])]
    return next(filter(None, (refused_node(item) for item in inner if isinstance(item, dict) and item)), None)


# -- recipes, studies and the commands' own YAMLs, which are judged as they were composed


NEEDED_BY = {"evaluate": ["run=RUN"], "visualize": ["run=RUN"], "predict": ["run=RUN", "images=FILES"]}
NEEDED_BY |= {"export": ["run=RUN", "output=FOLDER"], "pack": ["data=digits"]}
NEEDED_BY |= {"new": ["output=FOLDER"], "compress": ["run=RUN"], "explain": ["run=RUN", "images=FILES"]}
NEEDED_BY |= {"replay": ["run=RUN"]}
NEEDED_BY |= {"fit": ["data=digits"], "serve": ["bundle=FOLDER"]}
NEEDED_BY |= {"survey": ["model=vit_b16", "data=digits"]}
NEEDED_BY |= {"features": ["output=FILE", "model=vit_b16", "data=digits"], "probe": ["model=vit_b16", "data=digits"]}
LAYERS = [f for group in ("recipe", "study") for f in sorted((EXPERIMENTS / group).glob("[!_]*.yaml"))]


def test_a_misspelt_key_in_a_commands_own_yaml_is_noticed():
    for command in COMMANDS:
        cfg = unresolved(command, *NEEDED_BY.get(command, []))
        content = yaml.safe_load((CONF / f"{command}.yaml").read_text())
        assert not unnoticed(cfg, command, content), command


@pytest.mark.slow
@pytest.mark.parametrize("file", LAYERS, ids=name)
def test_a_misspelt_key_in_a_recipe_or_a_study_is_noticed(file):
    option = f"{file.parent.name}={file.stem}"
    cfg = composed(option, *NEEDED.get(option, []))
    assert not unnoticed(cfg, "train", yaml.safe_load(file.read_text()))


def unnoticed(cfg, command, content):
    """The keys of a YAML beside which a misspelt one would be taken, in what it was composed to."""
    quiet = []
    for path in keys(content):
        *above, last = path
        check(cfg, command, above)  # as it stands
        inner = reduce(getitem, above, cfg)
        with open_dict(cfg):
            inner[f"{last}x"] = 1
        try:
            check(cfg, command, above)
            quiet.append(".".join(path))
        except ConfigError:
            pass
        with open_dict(cfg):
            del inner[f"{last}x"]
    return quiet


def check(cfg, command, above):
    """What is checked before a start, and by the constructor nearest to the keys below `above`."""
    check_keys(cfg, command)
    check_nodes(cfg)
    nodes = [reduce(getitem, above[:depth], cfg) for depth in range(len(above), 0, -1)]
    for node in [node for node in nodes if "_target_" in node][:1]:
        target = get_object(node["_target_"])
        check_names(target, [key for key in node if key not in WEIGHTS], "")
