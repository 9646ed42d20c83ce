"""Find a source of weights by the name that a user gives."""

import json
from pathlib import Path
from typing import Any

from vitlab.errors import CheckpointError
from vitlab.weights import (
    by_timm,
    facebook,
    hub,
    huggingface,
    jax_npz,
    openclip_names,
    own_run,
    tensor_file,
    timm_names,
    torchvision_names,
    towers,
    trocr,
    vit5_names,
)
from vitlab.weights.form import LoadedWeights, StatedFacts, describe_source
from vitlab.weights.renaming import Tensors

FORMS = (
    huggingface.FORM,
    torchvision_names.FORM,
    openclip_names.FORM,
    jax_npz.FORM,
    vit5_names.FORM,
    facebook.FORM,
    timm_names.FORM,
)
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
KINDS = "a run, a file of weights, a folder with config.json, timm:NAME or hf:ORG/NAME"


def find(name: str, rename: bool = True) -> LoadedWeights:
    """Read what `name` stands for. Without `rename` tensors keep their names, for models other than ViTs;
    those of TrOCR have a captioner's, those of CLIP and SigLIP an ImageTextModel's.

    Raises CheckpointError when there is nothing, or it cannot be read.
    """
    kind, _, rest = name.partition(":")
    if kind == "timm" and rest:
        return by_timm.read_timm(rest, rename)
    if kind == "hf" and rest:
        repository, _, revision = rest.partition("@")
        hub.fetch(repository, ("config.json",), revision or None)
        file = hub.fetch(repository, FILES, revision or None)
        for shard in tensor_file.shards(file):
            hub.fetch(repository, (shard,), revision or None)
        return read_folder(file.parent, name, rename, file)
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "checkpoints").is_dir() or not any((path / file).is_file() for file in FILES):
            if (path / "config.json").is_file():
                raise CheckpointError(f"{path} has a config.json, but none of the files {', '.join(FILES)}")
            return own_run.read_run(path, rename)
        return read_folder(path, str(path), rename)
    if not path.is_file():
        raise CheckpointError(f"model.pretrained={name} does not exist; give {KINDS}")
    if path.suffix == ".ckpt":
        return own_run.read_run(path, rename)
    if path.name in FILES:  # a config.json beside it is about it
        return read_folder(path.parent, str(path), rename, path)
    return recognise(tensor_file.read_tensors(path), str(path), {}, rename)


def read_folder(folder: Path, origin: str, rename: bool, file: Path | None = None) -> LoadedWeights:
    """Read a folder of Hugging Face or timm: weights (`file`, or the first that there is), and a config.json."""
    file = file or next(folder / name for name in FILES if (folder / name).is_file())
    config: Any = {}
    if (folder / "config.json").is_file():
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{folder / 'config.json'} is damaged: {error}") from error
        if not isinstance(config, dict):
            raise CheckpointError(f"{folder / 'config.json'} is damaged: it holds no object")
    return recognise(tensor_file.read_tensors(file), origin, config, rename)


def recognise(tensors: Tensors, origin: str, config: dict[str, Any], rename: bool) -> LoadedWeights:
    """Bring tensors to our names, with what the form and the config say of them."""
    if not rename and config.get("model_type") == trocr.KIND:
        return trocr.read(origin, tensors, config)
    if not rename and towers.has_two_towers(set(tensors)):
        return towers.read(origin, tensors, config)
    if not rename:
        return LoadedWeights(origin, "plain", tensors, timm_names.read_name(config) if "architecture" in config else {})
    form = next((form for form in FORMS if form.recognises(set(tensors))), None)
    if "architecture" in config:
        form, stated = timm_names.FORM, timm_names.read_config(config, origin)
    elif "model_type" in config:
        form, stated = huggingface.FORM, huggingface.read_config(config, origin)
    elif form is not None:
        stated = StatedFacts({})
    else:
        raise CheckpointError(
            f"{origin} holds no Vision Transformer by the names of {', '.join(one.name for one in FORMS)}; its first "
            f"tensor is {next(iter(tensors))}"
        )
    return describe_source(origin, form, tensors, stated)
