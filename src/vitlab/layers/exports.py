"""How a part declares which models of other libraries compute the same.

A class has `exports`: the names that `vitlab.weights` gives to models of other libraries, each with the options that
choose this part there. It is not inherited: a part that does not declare a model is not exported to it.
"""

from collections.abc import Mapping
from typing import Any

Exports = Mapping[str, Mapping[str, Any]]
# models of Hugging Face which add a learned row to each token: it may be 0, or what another layout gives
WITH_TABLES: Exports = {"vit": {}, "clip_vision_model": {}, "siglip_vision_model": {}}


def find_exported_options(part: object, model: str) -> Mapping[str, Any] | None:
    """Return the options that choose a part in a model of another library; None where its class does not declare it."""
    declared: Exports = vars(type(part)).get("exports", {})
    return declared.get(model)
