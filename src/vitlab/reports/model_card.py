"""Write what a reader must know of a model before using it, as the README.md that hubs show.

Mitchell et al., 2019, arXiv:1810.03993: data, factors, metrics, limits. The header is Hugging Face's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from vitlab.monitors import format_metric
from vitlab.reports.intervals import wilson_interval
from vitlab.reports.tables import format_markdown

FEW = 30  # test images of a class, below which its accuracy says little
MOST_CLASSES = 50  # in the table, those of the lowest accuracy

LOAD = """\
import numpy as np, onnxruntime
from PIL import Image
image = Image.open("photo.jpg").convert("{mode}")
array = np.asarray(image).reshape(1, image.height, image.width, {channels})
print(onnxruntime.InferenceSession("classifier.onnx").run(["probabilities"], {{"image": array}})[0])"""


@dataclass(frozen=True)
class ModelCard:
    """What is known of a run, its folder apart: `result` is {} for weights that it did not test, `samples` are the true
    and the predicted class of each test sample, `start` its first in provenance.json, `preprocessing` plain values."""

    name: str
    step: int
    config: dict[str, Any]
    names: Sequence[str]
    preprocessing: dict[str, Any]
    result: dict[str, Any]
    samples: dict[tuple[str, ...], tuple[str, str]]
    start: dict[str, Any]
    cost: str
    proved: Sequence[str]

    def text(self) -> str:
        """Write the card: a header in YAML, then sections in Markdown."""
        sections = {
            "Use": self.describe_use(),
            "Data": self.describe_data(),
            "Recipe": self.describe_recipe(),
            "Results": self.describe_results(),
            "Classes": self.describe_classes(),
            "Calibration": self.describe_calibration(),
            "Limits": self.describe_limits(),
            "Cost": self.describe_cost(),
            "Licence": "Not stated. The weights may carry the terms of the data and of the weights they started from.",
            "Proof": "\n".join(f"- {line}" for line in self.proved),
        }
        body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items() if text)
        return f"---\n{self.header()}---\n\n# {self.name}\n\n{body}\n"

    def header(self) -> str:
        """Write the facts that a hub reads, in YAML."""
        accuracy = self.result.get("test", {}).get("test/acc1")
        header: dict[str, Any] = {
            "library_name": "vitlab",
            "pipeline_tag": "image-classification" if self.scores_classes else "image-feature-extraction",
            "tags": ["vision-transformer", "onnx", "vitlab"],
            "license": "other",
        }
        if accuracy is not None:
            task = {"type": "image-classification"}
            data = {"name": self.data_name, "type": self.data_name, "split": "test"}
            metric = {"type": "accuracy", "value": round(accuracy, 4)}
            result = {"task": task, "dataset": data, "metrics": [metric]}
            header["model-index"] = [{"name": self.name, "results": [result]}]
        return str(yaml.safe_dump(header, sort_keys=False, allow_unicode=True))

    @property
    def data_name(self) -> str:
        """Name the data by its source, without the folder that it lay in."""
        return str(self.config["data"]["source"]["_target_"]).rpartition(".")[2].lower()

    @property
    def scores_classes(self) -> bool:
        return any(line.startswith("classifier") for line in self.proved)

    def describe_use(self) -> str:
        if not self.scores_classes:
            return (
                "The `.onnx` and `.pt2` files take normalised pixels, for which `preprocessing.json` says what to do, "
                "and tokens of `vocabulary.json` where the model knows texts; `bundle.json` names their inputs and "
                "outputs."
            )
        mode = self.preprocessing["mode"] or "RGB"
        code = LOAD.format(mode=mode, channels=self.preprocessing["channels"])
        return (
            f"`classifier.onnx` takes images (batch, height, width, {self.preprocessing['channels']}) in uint8, of any "
            "size, and gives calibrated probabilities of the classes of `labels.json`, in its order. `model.onnx` and "
            "`model.pt2` take normalised pixels; `preprocessing.json` says how to get them.\n\n"
            f"```python\n{code}\n```\n\n"
            "With Pillow's pixels exactly as in training, by the package in the folder `runtime/` of vitlab:\n\n"
            '```python\nimport vitlab_runtime\nprint(vitlab_runtime.load(".")(["photo.jpg"]))\n```'
        )

    def describe_data(self) -> str:
        told = f"{self.data_name}: {len(self.names)} classes" if self.scores_classes else self.data_name
        size = self.preprocessing["image_size"]
        tested = f", {len(self.samples):,} test images" if self.samples else ""
        return f"{told}{tested}. Images are brought to {size}x{size} pixels ({self.preprocessing['interpolation']})."

    def describe_recipe(self) -> str:
        config, told = self.config, {}
        told["model"] = config["model"]["_target_"].rpartition(".")[2]
        told["started from"] = "other weights" if config["model"].get("pretrained") else "random weights"
        told |= {"epochs": config["trainer"]["max_epochs"], "global batch size": config["global_batch_size"]}
        optimizer = config["optimizer"]
        told |= {"optimizer": optimizer["algorithm"]["_target_"].rpartition(".")[2], "lr": optimizer["lr"]}
        told |= {"weight decay": optimizer["weight_decay"], "seed": config["seed"]}
        told |= {
            "vitlab": self.start.get("versions", {}).get("vitlab"),
            "commit": self.start.get("git", {}).get("commit"),
        }
        return format_markdown([{"setting": key, "value": value} for key, value in told.items() if value is not None])

    def describe_results(self) -> str:
        if not self.result.get("test"):
            return "These weights were not tested by their run."
        rows = []
        for name, value in self.result["test"].items():
            row = {"metric": name, "value": format_metric(name, value), "95 % interval": ""}
            if name == "test/acc1" and self.samples:
                low, high = wilson_interval(value * len(self.samples), len(self.samples))
                row["95 % interval"] = f"{low:.2%} to {high:.2%}"
            rows.append(row)
        partial = self.result.get("partial")
        note = f"\n\nNot every sample was used: {', '.join(partial)}." if partial else ""
        return format_markdown(rows) + note

    def describe_classes(self) -> str:
        rows = self.count_classes()
        if not rows:
            return ""
        worst = sorted(rows, key=lambda row: row["right"] / row["images"])[:MOST_CLASSES]
        lines = []
        for row in worst if len(rows) > MOST_CLASSES else rows:
            low, high = wilson_interval(row["right"], row["images"])
            accuracy = f"{row['right'] / row['images']:.1%} ({low:.1%} to {high:.1%})"
            lines.append({**row, "accuracy (95 % interval)": accuracy})
        more = f"\n\nThe {MOST_CLASSES} of the lowest accuracy, of {len(rows)}." if len(rows) > MOST_CLASSES else ""
        return format_markdown(lines) + more

    def count_classes(self) -> list[dict[str, Any]]:
        """Count the test images of each class, and those that are right."""
        count = Counter(true for true, _ in self.samples.values())
        right = Counter(true for true, predicted in self.samples.values() if true == predicted)
        return [{"class": name, "images": count[name], "right": right[name]} for name in self.names if count[name]]

    def describe_calibration(self) -> str:
        found = self.result.get("calibration")
        if not self.scores_classes:
            return ""
        if not found:
            return "The probabilities are not calibrated."
        before, after = found["before"]["ece"], found["after"]["ece"]
        told = (
            f"Probabilities are those of logits divided by {found['temperature']:.4g}, fitted on {found['samples']:,} "
            f"validation images: calibration error there {before:.2%} before, {after:.2%} after."
        )
        if rate := found.get("false_alarm_rate"):
            told += f" A `novelty` above 1, which {rate:.0%} of the validation images had, says: none of these classes."
        return told

    def describe_limits(self) -> str:
        told = [
            "The figures hold for images like those of the test split; other cameras, lights and places were not "
            "measured.",
            f"An image of another kind still gets one of the {len(self.names)} classes; look at `novelty`.",
        ]
        few = [row["class"] for row in self.count_classes() if row["images"] < FEW]
        if few:
            told.append(f"Fewer than {FEW} test images: {', '.join(few[:10])}{' and others' if len(few) > 10 else ''}.")
        return "\n".join(f"- {line}" for line in told) if self.scores_classes else ""

    def describe_cost(self) -> str:
        told = [f"{self.cost}."]
        if self.result:
            told.append(f"Training took {self.result['seconds']:,.0f} s on {self.start.get('device', 'one machine')}.")
        return " ".join(told)
