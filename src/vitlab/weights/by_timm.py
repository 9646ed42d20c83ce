"""Read weights of timm by name, through timm itself: its own filters bring every model's file into its form."""

from pathlib import Path
from typing import Any

from vitlab.errors import CheckpointError
from vitlab.weights import hub
from vitlab.weights.form import LoadedWeights, describe_source
from vitlab.weights.timm_names import FORM, read_facts

FILES = ("model.safetensors", "open_clip_model.safetensors", "pytorch_model.bin", "open_clip_pytorch_model.bin")


def load_config(name: str) -> Any:
    """Tell what timm says of weights: NAME or NAME.TAG, as `timm.create_model` takes it. Raises CheckpointError."""
    try:
        import timm
    except ImportError as error:
        raise CheckpointError(f"the weights timm:{name} need timm: pip install timm") from error
    if not timm.is_model(name.split(".")[0]):
        near = timm.list_models(f"*{name.split('.')[0]}*")[:5] or timm.list_models("vit_base*")[:5]
        raise CheckpointError(f"timm has no model '{name}'; it has for instance {', '.join(near)}")
    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        tags = ", ".join(timm.list_pretrained(f"{name.split('.')[0]}.*")[:5]) or "none"
        raise CheckpointError(f"timm has no weights '{name}'; those of this model are {tags}") from error
    if config is None or not config.has_weights:
        raise CheckpointError(f"timm has no weights for '{name}'")
    return config


def read_timm(name: str, rename: bool) -> LoadedWeights:
    """Read the weights of that name; without `rename` for timm's own model. Raises CheckpointError."""
    path = find_file(load_config(name))
    import timm

    try:
        model: Any = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": str(path)})
    except Exception as error:  # whatever a damaged file leads to
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(f"timm cannot load {name} from {path}: {reason}") from error
    if not rename:
        return LoadedWeights(
            f"timm:{name}", FORM.name, model.state_dict(), {"name": model.pretrained_cfg["architecture"]}
        )
    return describe_source(f"timm:{name}", FORM, model.state_dict(), read_facts(model, f"timm:{name}"))


def find_file(config: Any) -> Path:
    """Find the file of weights, and download it if need be."""
    if config.hf_hub_id:
        repository, _, revision = config.hf_hub_id.partition("@")
        names = (config.hf_hub_filename,) if config.hf_hub_filename else FILES
        return hub.fetch(repository, names, revision or None)
    from timm.models._hub import check_cached_file, download_cached_file

    url = config.url
    if not check_cached_file(url):
        hub.reach(url if isinstance(url, str) else url[0], f"{config.architecture} of timm")
    return Path(download_cached_file(url))
