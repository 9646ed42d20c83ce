"""The model of a config, and the weights it starts from."""

from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch.nn import Module

from vitlab.errors import ConfigError
from vitlab.models.activation_checkpointing import checkpoint_activations
from vitlab.run.build import build, plain

OF_THE_RUN = ("pretrained", "pretrained_partial")  # keys of the model group that its constructor does not see


def build_model(node: DictConfig, key: str = "model") -> Module:
    """The model at `key`, from random weights. Raises ConfigError for weights that are named at a model within it."""
    return build(OmegaConf.create(without_weights(plain(node), key)), key)


def without_weights(node: dict[str, Any], key: str) -> dict[str, Any]:
    """A model's node, and those of models within it, without the keys that are the run's."""
    own = {name: value for name, value in node.items() if name not in OF_THE_RUN}
    for name, value in own.items():
        if isinstance(value, dict) and "_target_" in value:
            if value.get("pretrained") is not None:
                raise ConfigError(
                    f"{key}.{name}.pretrained is not read; give weights for all of it by {key}.pretrained"
                )
            own[name] = without_weights(value, f"{key}.{name}")
    return own


def recompute_activations(model: Module) -> int:
    """activation_checkpointing=true; returns of how many blocks. Raises ConfigError for a model that cannot."""
    try:
        return checkpoint_activations(model)
    except ValueError as error:
        raise ConfigError(f"activation_checkpointing: {error}") from error


def load_pretrained(model: Module, node: DictConfig) -> Any:
    """Give the model the weights that model.pretrained names; returns what became of every tensor, None without.

    Raises CheckpointError when the source cannot be read or does not fit.
    """
    if node.get("pretrained") is None:
        return None
    from vitlab.weights import load

    return load(model, str(node.pretrained), partial=bool(node.pretrained_partial))
