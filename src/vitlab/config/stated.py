"""Tell what an option's own YAML states, and what a run has in place of it."""

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.config.composition import compose, hydra_of
from vitlab.config.home import CONF
from vitlab.config.nodes import as_plain, as_written, flatten


def changed_values(group: str, option: str, node: DictConfig) -> dict[str, Any]:
    """Give the values of a node that are others than its option of the group states, by their keys within it, as plain
    types; none where that option is no file of ours."""
    if not (CONF / group / f"{option}.yaml").is_file():
        return {}
    with hydra_of("train"):
        stated = as_written(compose("train", [f"{group}={option}"]).cfg[group])
    written = dict(flatten(as_written(node)))
    changed = [key for key, value in flatten(stated) if key in written and written[key] != value]
    return {key: as_plain(OmegaConf.select(node, key)) for key in changed}


def encoder_of(option: str) -> str | None:
    """Name the model that another holds as its encoder: vit_xs4 in mae_xs4. None where no file of ours says it."""
    file = CONF / "model" / f"{option}.yaml"
    found = re.search(r"(\w+)@encoder", file.read_text(encoding="utf-8")) if file.is_file() else None
    return found[1] if found else None
