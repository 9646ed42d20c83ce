"""Export a finished run: as a bundle that needs no vitlab, or for timm or Hugging Face's transformers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from PIL import Image
from rich.console import Console
from torch import nn

import vitlab
from vitlab.atomic_files import write_folder_atomically, write_json, write_whole
from vitlab.bundles import layout
from vitlab.bundles.formats import check_libraries
from vitlab.bundles.writing import FORMS, Form, write_graphs, write_weights
from vitlab.config.arguments import format_override
from vitlab.config.nodes import resolve_config
from vitlab.counting import costs, total
from vitlab.errors import ConfigError
from vitlab.invocation import format_command
from vitlab.reports.finished import read_samples
from vitlab.reports.model_card import ModelCard
from vitlab.reports.run import read_result
from vitlab.run.building.model import build_model
from vitlab.run.checks.preconditions import check_images
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import RUNS, output_folder
from vitlab.tasks import MultilabelClassification, Task
from vitlab.tasks.supervised import Supervised
from vitlab.weights.export_proof import check_export
from vitlab.weights.exporting import Export, ExportedPreprocessing, require_vit
from vitlab.weights.hub import check_upload, upload
from vitlab.weights.huggingface_export import export_huggingface, open_huggingface
from vitlab.weights.timm_export import export_timm, open_timm

LIBRARIES = {  # what writes it, what opens it there, and how a user does
    "timm": (export_timm, open_timm, 'timm.create_model("local-dir:{}", pretrained=True)'),
    "huggingface": (export_huggingface, open_huggingface, 'transformers.{architecture}.from_pretrained("{}")'),
}
FORMATS = ("bundle", *FORMS, *LIBRARIES)


def export(cfg: DictConfig) -> Path:
    """Write the run's best model, its class names and its preprocessing into cfg.output; returns that folder. Raises
    ConfigError unless what is written computes the same as the model."""
    if cfg.format not in FORMATS:
        raise ConfigError(f"format '{cfg.format}' is not one of: {', '.join(FORMATS)}")
    if cfg.format in ("bundle", "onnx"):
        check_libraries()
    if cfg.push is not None:
        check_upload(cfg.push)
    place = output_folder(cfg.output, "export", RUNS, overwrite=cfg.overwrite)
    saved = SavedRun.open(cfg.run, {"data": resolve_config(cfg.data)})
    check_images(saved.config.data)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with place.make_folder() as output, write_folder_atomically(output) as temporary:
        if cfg.format in LIBRARIES:
            opened, notes = export_for_library(cfg.format, saved, temporary)
            opened = f"for {opened}"
        else:
            whole = cfg.format == "bundle"
            forms = list(FORMS.values()) if whole else [FORMS[cfg.format]]
            notes = export_graphs(saved, temporary, forms, whole)
            opened = "README.md in it shows how to use it" if whole else "with labels, preprocessing and calibration"
    console.print(f"{saved.path}\nis in {output}, {opened.format(output)}")
    for line in notes:
        console.print(line)
    if cfg.format == "bundle" and (output / "classifier.onnx").is_file():
        console.print(f"served by: {format_command('serve')} {format_override('bundle', str(output))}")
    if cfg.push is not None:
        console.print(f"uploaded to {upload(output, cfg.push)}")
    return output


def export_graphs(
    saved: SavedRun,
    folder: Path,
    forms: Sequence[Form],
    whole: bool,
    model: nn.Module | None = None,
    notes: Sequence[str] = (),
) -> list[str]:
    """Write graphs that need no vitlab, with labels, preprocessing and calibration; `whole`: also model card, index,
    and weights, unless a `model` takes the place of the run's. Returns what was proved, behind the `notes`."""
    task = saved.task().eval()
    names = [str(name) for name in saved.checkpoint["run"]["class_names"]]
    bundle = write_graphs(folder, task, saved.datamodule(), names, forms, model)
    calibration = {key: saved.calibration.get(key) for key in ("temperature", "false_alarm_rate", "samples")}
    write_json(folder / layout.CALIBRATION, calibration)
    if (vocabulary := saved.vocabulary) is not None:
        write_json(folder / layout.VOCABULARY, {**vocabulary.state(), "tokens": vocabulary.special._asdict()})
    proved = [*notes, *bundle.lines()]
    if whole:
        if model is None:
            write_weights(folder, task.model, resolve_config(saved.config)["model"])
        card = describe_model(saved, task, names, bundle.preprocessing.to_json(), proved)
        write_whole(folder / layout.CARD, card.text().encode())
        kind = type(task).__name__.lower()
        facts = {"vitlab": vitlab.__version__, "name": saved.config.name, "task": kind, "step": card.step}
        layout.write_index(folder, facts | bundle.to_json())
    return proved


def describe_model(
    saved: SavedRun, task: Task, names: Sequence[str], preprocessing: dict[str, Any], proved: Sequence[str]
) -> ModelCard:
    """Collect what the card says of a run. Its result counts only where it is of these weights."""
    step = int(saved.checkpoint.get("global_step", 0))
    result = read_result(saved.folder) or {}
    result = result if result.get("best_step") == step else {}
    starts = saved.folder / "provenance.json"
    size = preprocessing["image_size"]
    cost = f"{sum(parameter.numel() for parameter in task.model.parameters()):,} parameters"
    if isinstance(task, Supervised):
        counted = total(costs(task.model, (preprocessing["channels"], size, size)))
        cost += f", {(counted.weights + counted.attention) / 1e9:.3g} billion multiply-accumulates an image"
    return ModelCard(
        name=str(saved.config.name),
        step=step,
        config=resolve_config(saved.config),
        names=names,
        preprocessing=preprocessing,
        result=result,
        samples=read_samples(saved.folder) if result else {},
        start=json.loads(starts.read_bytes())[0] if starts.is_file() else {},
        cost=cost,
        proved=proved,
    )


def export_for_library(name: str, saved: SavedRun, folder: Path) -> tuple[str, list[str]]:
    """Write the model as a folder of another library. Returns how it is opened there, with {} for the folder, and what
    there is to note."""
    names = [str(name) for name in saved.checkpoint["run"]["class_names"]]
    if len(set(names)) < len(names):
        names = [f"{number} {name}" for number, name in enumerate(names)]
    task = saved.task()
    data = resolve_config(saved.config)["data"]
    preprocessing = ExportedPreprocessing(data["mean"], data["std"], *find_resize_size(data["images"]["eval_crop"]))
    exported, open_there, opened = LIBRARIES[name]
    model = require_vit(task.model).eval()
    made = exported(model, names, preprocessing, isinstance(task, MultilabelClassification))
    twin = build_model(saved.change_config({"model": made.options}).config.model)
    write(folder, made)
    note = check_export(folder, made, model, twin, open_there)
    (architecture,) = made.files["config.json"].get("architectures", [""])
    headless = "" if made.has_head else "the head is left out: Hugging Face's model of this kind gives features"
    return opened.replace("{architecture}", architecture), [line for line in (headless, note) if line]


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
