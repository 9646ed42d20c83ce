"""Export a finished run as a folder that timm or Hugging Face's transformers open."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from PIL import Image
from rich.console import Console

from vitlab.atomic_files import write_folder_atomically, write_json
from vitlab.config.nodes import resolve_config
from vitlab.errors import ConfigError
from vitlab.run.building.model import build_model
from vitlab.run.checks.preconditions import check_images
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import RUNS, output_folder
from vitlab.tasks import MultilabelClassification
from vitlab.weights.export_proof import check_export
from vitlab.weights.exporting import Export, ExportedPreprocessing, require_vit
from vitlab.weights.huggingface_export import export_huggingface, open_huggingface
from vitlab.weights.timm_export import export_timm, open_timm

FORMATS = {  # what writes it, what opens it there, and how a user does
    "timm": (export_timm, open_timm, 'timm.create_model("local-dir:{}", pretrained=True)'),
    "huggingface": (export_huggingface, open_huggingface, 'transformers.{architecture}.from_pretrained("{}")'),
}


def export(cfg: DictConfig) -> Path:
    """Write the run's best model, its class names and its preprocessing into cfg.output; returns that folder. Raises
    ConfigError unless what is written computes the same as the model."""
    if cfg.format not in FORMATS:
        raise ConfigError(f"format '{cfg.format}' is not one of: {', '.join(FORMATS)}")
    place = output_folder(cfg.output, "export", RUNS, overwrite=cfg.overwrite)
    saved = SavedRun.open(cfg.run)
    check_images(saved.config.data)
    names = [str(name) for name in saved.checkpoint["run"]["class_names"]]
    if len(set(names)) < len(names):
        names = [f"{number} {name}" for number, name in enumerate(names)]
    task = saved.task()
    data = resolve_config(saved.config)["data"]
    preprocessing = ExportedPreprocessing(data["mean"], data["std"], *find_resize_size(data["images"]["eval_crop"]))
    several_labels = isinstance(task, MultilabelClassification)
    exported, open_there, opened_by = FORMATS[cfg.format]
    model = require_vit(task.model).eval()
    made = exported(model, names, preprocessing, several_labels)
    twin = build_model(saved.change_config({"model": made.options}).config.model)
    with place.make_folder() as output, write_folder_atomically(output) as temporary:
        write(temporary, made)
        note = check_export(temporary, made, model, twin, open_there)
    console = Console(soft_wrap=True, highlight=False)
    (architecture,) = made.files["config.json"].get("architectures", [""])
    opened = opened_by.format(output, architecture=architecture)
    console.print(f"{saved.path}\nis in {output}, for {opened}", markup=False)
    headless = "" if made.has_head else "the head is left out: Hugging Face's model of this kind gives features"
    for line in filter(None, (headless, note)):
        console.print(line)
    return output


def find_resize_size(crop: dict[str, Any]) -> tuple[int | None, Image.Resampling]:
    """Give the size that the shorter side is resized to before the centre is cut out (None where images are resized
    whole), and Pillow's interpolation. Raises ConfigError for a crop that neither library knows."""
    if "max_tokens" in crop:
        raise ConfigError(
            "that format has no preprocessing for images in their own shape; export a run with another crop="
        )
    return crop.get("resize_size"), Image.Resampling[crop["interpolation"].upper()]


def write(folder: Path, made: Export) -> None:
    """Write tensors and JSON files into a folder."""
    from safetensors.torch import save_file

    tensors = {name: value.clone() for name, value in made.tensors.items()}  # no two may share memory
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in made.files.items():
        write_json(folder / name, content)
