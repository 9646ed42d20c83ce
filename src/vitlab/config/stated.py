"""Tell what an option's own YAML states, and what a run has in place of it."""

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.config.composition import compose, hydra_of
from vitlab.config.home import CONF


def changed_values(group: str, option: str, node: DictConfig) -> dict[str, Any]:
    """Give the values of a node that are others than its option of the group states, by their keys within it, as plain
    types; none where that option is no file of ours."""
    if not (CONF / group / f"{option}.yaml").is_file():
        return {}
    with hydra_of("train"):
        stated = OmegaConf.to_container(compose("train", [f"{group}={option}"]).cfg[group])
    written = flat(OmegaConf.to_container(node))
    changed = [key for key, value in flat(stated).items() if key in written and written[key] != value]
    return {key: plain_value(node, key) for key in changed}


def plain_value(node: DictConfig, key: str) -> Any:
    value = OmegaConf.select(node, key)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def flat(values: Any, key: str = "") -> dict[str, Any]:
    """List the values below a node by their full keys."""
    if not isinstance(values, dict):
        return {key: values}
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{key}.{name}" if key else str(name))
    return found


def encoder_of(option: str) -> str | None:
    """Name the model that another holds as its encoder: vit_xs4 in mae_xs4. None where no file of ours says it."""
    file = CONF / "model" / f"{option}.yaml"
    found = re.search(r"(\w+)@encoder", file.read_text(encoding="utf-8")) if file.is_file() else None
    return found[1] if found else None
