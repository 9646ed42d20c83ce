"""Complete words for bash's Tab key after `vitlab`: commands, groups and their options, keys, flags."""

import re
from collections.abc import Iterable

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.errors import HydraException
from hydra.plugins.completion_plugin import DefaultCompletionPlugin

from vitlab.config.arguments import TEXTS
from vitlab.config.home import CONF

FLAGS = ("--cfg", "--help", "--hydra-help", "--multirun")
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
    elif word.partition("=")[0].lstrip("+") in TEXTS:
        found = []
    else:
        found = of_config(before[1], [*(one for one in before[2:] if "=" in one), word])
    start = max(word.rfind(mark) for mark in "=:") + 1
    return [one[start:] for one in found]


def of_config(command: str, words: list[str]) -> list[str]:
    """The options and keys that Hydra knows, without those that only other options are made of."""
    plugin = DefaultCompletionPlugin(ConfigLoaderImpl(create_config_search_path(str(CONF))))
    try:
        found = plugin._query(config_name=command, line=" ".join(words))
    except HydraException:
        return []
    return [one for one in found if not re.search(r"[=/]_", one) and not one.startswith("hydra")]
