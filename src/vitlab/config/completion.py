"""Complete words for bash's Tab key after `vitlab`: commands, groups and their options, keys, flags."""

import re
from collections.abc import Iterable

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.checkpoints.run_folder import NEWEST, RUNS, find_runs
from vitlab.config.annotations import join_key
from vitlab.config.arguments import TEXTS
from vitlab.config.composition import compose, config_loader, initialize_hydra
from vitlab.config.nodes import convert_unresolved, remove_keys

OF_RUNS = ("run", "resume")  # keys that name a run
FLAGS = ("--cfg", "--help", "--multirun")
SCRIPT = """_vitlab() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
}
complete -o default -F _vitlab vitlab"""


def candidates(line: str, commands: Iterable[str]) -> list[str]:
    """List what may stand in place of the last word of a line; after a = or : only what follows it, where bash begins a
    word. None where a file is wanted, since bash knows the files."""
    *before, word = re.split(r"\s+", line.lstrip())
    if len(before) < 2:
        found = [name for name in commands if name.startswith(word)]
    elif word.startswith("-"):
        found = [flag for flag in FLAGS if flag.startswith(word)]
    elif (key := word.partition("=")[0].lstrip("+")) in OF_RUNS:
        found = [one for one in (f"{key}={run}" for run in [NEWEST, *sorted(find_runs(RUNS))]) if one.startswith(word)]
    elif key in TEXTS:
        found = []
    else:
        found = complete_config(before[1], [*(one for one in before[2:] if "=" in one), word])
    start = max(word.rfind(mark) for mark in "=:") + 1
    return [one[start:] for one in found]


def complete_config(command: str, words: list[str]) -> list[str]:
    """Complete the last word: the options of a group, or a key of the config that the words before it make. Options
    that only others are made of are left out."""
    *before, word = words
    key, chosen, _ = word.partition("=")
    with initialize_hydra(command):
        if chosen:
            options = config_loader().get_group_options(key.partition("@")[0])
            found = [f"{key}={option}" for option in options if not option.startswith("_")]
        else:
            try:
                cfg = remove_keys(compose(command, before).cfg, ("hydra",))
            except (HydraException, OmegaConfBaseException):
                return []
            parent = key.rpartition(".")[0]
            node = OmegaConf.select(cfg, parent, throw_on_missing=False) if parent else cfg
            values = convert_unresolved(node) if isinstance(node, DictConfig) else {}
            groups = [] if parent else [f"{group}=" for group in config_loader().list_groups("") if group != "hydra"]
            ends = {name: "." if isinstance(value, dict) else "=" for name, value in values.items()}
            keys = [join_key(parent, name) + end for name, end in ends.items() if not name.startswith("_")]
            found = [*groups, *keys]
    return sorted(one for one in set(found) if one.startswith(word))
