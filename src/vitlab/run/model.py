"""The model of a config, and the weights it starts from."""

from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch.nn import Module

from vitlab.run.build import build, plain

OF_THE_RUN = ("pretrained", "pretrained_partial")  # keys of the model group that its constructor does not see


def build_model(node: DictConfig) -> Module:
    """The model, from random weights."""
    own = {key: value for key, value in plain(node).items() if key not in OF_THE_RUN}
    return build(OmegaConf.create(own), "model")


def load_pretrained(model: Module, node: DictConfig) -> Any:
    """Give the model the weights that model.pretrained names; returns what became of every tensor, None without.

    Raises CheckpointError when the source cannot be read or does not fit.
    """
    if node.get("pretrained") is None:
        return None
    from vitlab.weights import load

    return load(model, str(node.pretrained), partial=bool(node.pretrained_partial))
