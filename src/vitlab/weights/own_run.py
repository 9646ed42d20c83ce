"""Read weights from a run of ours."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitlab.checkpoints.run_folder import find_model
from vitlab.checkpoints.run_identity import read_checkpoint
from vitlab.errors import CheckpointError
from vitlab.layers import Grid
from vitlab.weights import timm_names
from vitlab.weights.form import LoadedWeights, describe_source
from vitlab.weights.renaming import Tensors

MODEL, TEACHER = "model.", "teacher."  # the task's names for its model, and for an average of it that is better
VOCABULARIES = ("vocabulary", "input_vocabulary")
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
OF_PRETRAINING = r"mask_token$|decoder[_.]|(image_)?projection\.|text[_.]|logit_"  # what a model has beside its encoder
FACTS = ("num_heads", "norm", "norm_eps", "mlp", "position")
OF_A_DECODER = (*FACTS, "norm_first", "scale_embedding", "embed_norm", "causal", "scaled_attention")


def read_run(path: Path, rename: bool) -> LoadedWeights:
    """Read the model of a run's folder, or the checkpoint itself. With `rename` the encoder of a
    pre-trained model gets the names of a Vision Transformer. Raises CheckpointError."""
    path = find_model(path)
    checkpoint = read_checkpoint(path)
    state = checkpoint["state_dict"]
    prefix = TEACHER if any(name.startswith(TEACHER) for name in state) else MODEL
    tensors = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    config = fill_found(checkpoint["run"]["config"])
    node = config["model"]
    whole, extras = node, LoadedWeights.extras
    if isinstance(node.get("encoder"), dict):
        node = node["encoder"]
    model = {key: follow_reference(value, config) for key, value in node.items()}
    if str(node.get("_target_")).endswith(".timm_model"):
        return describe_timm(str(path), tensors, model, rename)
    facts = {key: model[key] for key in FACTS if model.get(key) is not None}
    if rename and "type_embed" in tensors:
        raise CheckpointError(
            f"{path} is a model of one Transformer for images and texts, whose weights do not fit a Vision "
            "Transformer; choose model=single_stream_xs8, or another run"
        )
    if whole is not node and rename:
        extras = OF_PRETRAINING
        tensors = {name.removeprefix("encoder."): value for name, value in tensors.items()}
    elif whole is not node:
        facts = {f"encoder.{key}": value for key, value in facts.items()}
        if isinstance(decoder := whole.get("decoder"), dict):
            facts |= {f"decoder.{key}": follow_reference(decoder[key], config) for key in OF_A_DECODER}
            facts |= {"question_length": follow_reference(whole.get("question_length", 0), config)}
        elif isinstance(text := whole.get("text"), dict):
            facts |= {f"text.{key}": follow_reference(text[key], config) for key in OF_A_DECODER}
            facts |= {"text_pool": whole["text_pool"]}
        else:
            facts |= {
                key: follow_reference(whole[key], config)
                for key in ("decoder_heads", "question_length")
                if key in whole
            }
    vocabularies = {key: checkpoint["run"].get(key) for key in VOCABULARIES}
    return LoadedWeights(
        str(path), "run", tensors, facts, grid(model), extras=extras, pool=model.get("pool"), vocabularies=vocabularies
    )


def describe_timm(origin: str, tensors: Tensors, model: dict[str, Any], rename: bool) -> LoadedWeights:
    """Describe a run of model=timm by the architecture that it names."""
    sizes = {key: model[ours] for key, ours in (("img_size", "image_size"), ("num_classes",) * 2) if model.get(ours)}
    config = {"architecture": str(model.get("name")), "model_args": sizes}
    if not rename:
        return LoadedWeights(origin, "run", tensors, timm_names.read_name(config))
    return replace(
        describe_source(origin, timm_names.FORM, tensors, timm_names.read_config(config, origin)), form="run"
    )


def fill_found(config: dict[str, Any]) -> dict[str, Any]:
    """Put what a run found in its data in place of what its saved config leaves open there."""
    data, found = config.get("data") or {}, config.get("found") or {}
    return {**config, "data": {**data, **{key: value for key, value in found.items() if data.get(key) is None}}}


def follow_reference(value: Any, config: dict[str, Any]) -> Any:
    """Follow a value of a saved config that may refer to another: ${data.image_size}. None where it cannot be
    resolved."""
    seen: set[str] = set()
    while isinstance(value, str) and (reference := REFERENCE.fullmatch(value)):
        if value in seen:
            return None
        seen.add(value)
        value = config
        for key in reference[1].split("."):
            value = value.get(key) if isinstance(value, dict) else None
    return value


def grid(model: dict[str, Any]) -> Grid | None:
    """Give the grid of patches, from the sizes in the saved config."""
    size = model.get("image_size")
    patch = model.get("patch_size") or (2 ** len(model["stem_channels"]) if model.get("stem_channels") else None)
    if patch is None or size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    return height // patch, width // patch
