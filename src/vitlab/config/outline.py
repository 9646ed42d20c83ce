"""Find which files a config is made of and which options it chooses, as Hydra would, but without the slow part:
values."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hydra.core.default_element import ConfigDefault, GroupDefault, InputDefault
from hydra.plugins.config_source import ConfigSource

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def outline(config: str, chosen: dict[str, Any], folders: Sequence[str]) -> dict[str, Path]:
    """List the YAMLs of a config by name, in the order in which they are merged, each from the first folder that has
    it. The options they choose are added to `chosen`, where earlier choices hold."""
    return parts(ConfigDefault(path=config, parent_base_dir="", parent_package=""), chosen, folders)


def parts(node: InputDefault, chosen: dict[str, Any], folders: Sequence[str]) -> dict[str, Path]:
    name = node.get_config_path()
    file = next((path for folder in folders if (path := Path(folder, f"{name}.yaml")).is_file()), None)
    if file is None:  # it is Hydra's
        return {}
    text = file.read_text(encoding="utf-8")
    node.set_package_header(ConfigSource._get_header_dict(text[:512])["package"])
    written = yaml.load(text, LOADER).get("defaults", []) if "defaults:" in text else []
    defaults = [as_hydra_reads(one) for one in (written if "_self_" in written else [*written, "_self_"])]
    for one in defaults:
        one.update_parent(node.get_group_path(), node.get_final_package())
        if isinstance(one, GroupDefault) and one.override:  # these count before those of what is included
            chosen.setdefault(one.get_override_key(), one.value)
    found: dict[str, Path] = {}
    for one in reversed(defaults):  # the last chooses first
        if one.is_self():
            found = {name: file} | found
        elif not isinstance(one, GroupDefault):
            found = parts(one, chosen, folders) | found
        elif not one.override:
            options = chosen.setdefault(one.get_override_key(), one.value)
            for option in reversed([options] if isinstance(options, str) else options or []):
                found = parts(replace(one, value=option), chosen, folders) | found
    return found


def as_hydra_reads(default: str | dict[str, Any]) -> InputDefault:
    """Parse an entry of a defaults list: a config, or a group and its option."""
    key, option = (default, None) if isinstance(default, str) else next(iter(default.items()))
    *words, name = key.split()
    name, _, package = name.partition("@")
    if isinstance(default, str):
        return ConfigDefault(path=name, package=package or None)
    return GroupDefault(group=name, package=package or None, value=option, override="override" in words)
