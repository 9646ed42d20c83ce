"""Write what --help says of groups and keys."""

import re
import shutil
import textwrap

from vitlab.config.composition import config_loader
from vitlab.config.home import CONF
from vitlab.invocation import format_command


def options() -> str:
    """List groups and their options for --help, without those that others build on, whose names begin with _."""
    loader, width = config_loader(), shutil.get_terminal_size().columns
    lines = []
    for group in loader.list_groups(""):
        names = [name for name in loader.get_group_options(group) if not name.startswith("_")]
        if names and group != "hydra":
            lines.append(textwrap.fill(f"{group}: {', '.join(names)}", width, subsequent_indent="  "))
    return "\n".join(lines)


def list_keys(command: str) -> str:
    """List the keys of a command for --help: its YAML, without the defaults that nobody chooses."""
    text = (CONF / f"{command}.yaml").read_text(encoding="utf-8").strip()
    text = re.sub(r"^  - (_self_|(override )?hydra: |trainer/_open|train$).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^defaults:\n(?!  )", "", text, flags=re.MULTILINE)
    return re.sub(r"python src/(\w+)\.py", lambda entry: format_command(entry[1]), text)
