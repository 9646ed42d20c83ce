"""Tell what an option's own YAML states, and what a run has in place of it."""

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.config.composition import compose, initialize_hydra
from vitlab.config.home import CONF
from vitlab.config.nodes import convert_unresolved, flatten, resolve_value


def find_changed_values(group: str, option: str, node: DictConfig) -> dict[str, Any]:
    """Give the values of a node that are others than its option of the group states, by their keys within it, as plain
    types; none where that option is no file of ours."""
    if not (CONF / group / f"{option}.yaml").is_file():
        return {}
    with initialize_hydra("train"):
        stated = convert_unresolved(compose("train", [f"{group}={option}"]).cfg[group])
    written = dict(flatten(convert_unresolved(node)))
    changed = [key for key, value in flatten(stated) if key in written and written[key] != value]
    return {key: resolve_value(OmegaConf.select(node, key)) for key in changed}


def find_encoder(option: str) -> str | None:
    """Name the model that another holds as its encoder: vit_xs4 in mae_xs4. None where no file of ours says it."""
    file = CONF / "model" / f"{option}.yaml"
    found = re.search(r"(\w+)@encoder", file.read_text(encoding="utf-8")) if file.is_file() else None
    return found[1] if found else None
