"""Parts that a user adds, each defined here as in a module of their own, registered as docs/architecture.md says."""

import csv
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import FEW, vit_options
from PIL import Image
from PIL.Image import Resampling
from sklearn.metrics import roc_auc_score
from tasks.test_multilabel import SMALL, task_of
from torchmetrics.classification import MulticlassAUROC, MultilabelAUROC

import vitlab
from vitlab.errors import ConfigError
from vitlab.layers import ATTENTION_POSITIONS, POSITIONS, Grid, NoPosition, Position, RotaryPosition, places
from vitlab.layers.written_attention import mask_scores
from vitlab.loggers import RunLogger
from vitlab.losses import evaluation_loss, keep_in_evaluation
from vitlab.models import VisionTransformer
from vitlab.monitors import METRICS, Metric, better, format_metric
from vitlab.programs.export import write
from vitlab.tasks import Classification, MultilabelClassification
from vitlab.tasks.predictions import COLUMNS
from vitlab.weights.export_proof import check_export
from vitlab.weights.exporting import ExportedPreprocessing
from vitlab.weights.huggingface_export import export_huggingface
from vitlab.weights.timm_export import export_timm, open_timm

# -- a metric: an entry in METRICS

AUROC = Metric(
    unit="percent",
    reads="probabilities",
    stages=("test",),
    one_class=MulticlassAUROC,
    several_classes=MultilabelAUROC,
)
BRIER = Metric(better="min", several_classes=lambda num_classes: MultilabelAUROC(num_classes))


@pytest.fixture
def auroc(monkeypatch):
    monkeypatch.setitem(METRICS, "auroc", AUROC)


@pytest.mark.usefixtures("auroc")
@pytest.mark.parametrize("kind", [Classification, MultilabelClassification])
def test_an_added_metric_is_given_probabilities_whatever_the_logits(kind):
    torch.manual_seed(0)
    logits = torch.rand(60, 10)  # which torchmetrics would take for probabilities
    target = torch.arange(60) % 10 if kind is Classification else (torch.rand(60, 10) < 0.4).float()
    task = task_of(kind)
    for part in (slice(7), slice(7, 60)):
        task.count("test", logits[part], target[part])
        task.count("val", logits[part], target[part])
    p = task.probabilities(logits)
    expected = roc_auc_score(target, p, **({"multi_class": "ovr"} if kind is Classification else {}))
    assert float(task.metrics["test"].compute()["auroc"]) == pytest.approx(expected, abs=1e-6)
    assert "auroc" not in task.metrics["val"].compute()
    assert "val/auroc" not in task.monitors()


@pytest.mark.usefixtures("auroc")
@pytest.mark.parametrize("options", [FEW, [*SMALL, "task=multilabel"]], ids=["one class", "several classes"])
def test_an_added_metric_is_printed_and_stored_at_test(cli, options):
    run = cli("train", *options, "trainer.max_epochs=-1", "trainer.max_steps=2", folder="run")
    assert run.status == 0, run.err
    value = json.loads((run.folder / "result.json").read_text())["test"]["test/auroc"]
    assert 0 < value < 1
    assert f"{value:.2%}" in run.out
    assert "test/auroc" in (run.folder / "metrics.csv").read_text()


def test_a_run_may_be_judged_by_an_added_metric(monkeypatch):
    monkeypatch.setitem(METRICS, "brier", BRIER)
    assert "val/brier" in task_of().monitors()
    assert task_of(monitor="val/brier")
    assert "val/brier" not in task_of(Classification).monitors()
    assert (better("val/brier"), format_metric("val/brier", 0.5)) == ("min", "0.5000")


# -- a loss: a function that declares which of its options evaluation keeps


@keep_in_evaluation("power")
def powered(logits, target, *, power=1.0, noise=0.0, class_weights=None):
    return ((logits.sigmoid() - target).abs() ** power + noise).mean(dim=1)


def test_evaluation_keeps_the_options_that_a_loss_declares():
    loss = evaluation_loss(partial(powered, power=2.0, noise=5.0))
    logits, target = torch.randn(3, 4), torch.ones(3, 4)
    torch.testing.assert_close(loss(logits, target), powered(logits, target, power=2.0))


# -- a logger: a class in loggers/, and a YAML in conf/logger/


class Service:
    """A client that keeps what it is sent."""

    def __init__(self):
        self.sent, self.pictures, self.ended = [], [], []


SERVICE = Service()


class Comet(RunLogger):
    """Logs to a service that is told how each run ends."""

    service = "Comet"

    def __init__(self, *, workspace: str, name: str, run_id: str, run_config: dict[str, Any]):
        super().__init__()
        self.workspace, self.title, self.run_id, self.run_config = workspace, name, run_id, run_config

    @property
    def name(self):
        return self.workspace

    @property
    def version(self):
        return self.run_id

    def log_hyperparams(self, params, *args, **kwargs):
        """The config is given when the logger is made."""

    def log_metrics(self, metrics, step=None):
        if step is not None and step > 1:
            self.guard(self.fail)
        self.guard(SERVICE.sent.append, (step, dict(metrics)))

    def fail(self):
        raise ConnectionError("no route to host")

    def close(self, exit_code):
        SERVICE.ended.append((self.title, self.run_config["seed"], exit_code))

    def upload_command(self):
        return f"comet upload {self.run_id}"


@pytest.mark.filterwarnings("ignore:Comet no longer accepts records")
def test_an_added_logger_is_built_closed_and_asked_for_its_upload(cli, monkeypatch):
    monkeypatch.setattr("test_added_parts.SERVICE", Service())
    node = "+logger.comet={_target_:test_added_parts.Comet,workspace:me}"
    options = [
        *FEW,
        "trainer.max_epochs=-1",
        "trainer.max_steps=3",
        "trainer.log_every_n_steps=1",
        node,
        "trust=test_added_parts",
    ]
    run = cli("train", *options, folder="run")
    assert run.status == 0, run.err
    assert [step for step, _ in SERVICE.sent] == [1]  # then it failed, and was called no more
    assert "train/loss" in SERVICE.sent[0][1]
    assert SERVICE.ended == [("vit_mu4_digits/run", 0, 0)]
    assert "upload     comet upload " in run.out


# -- a position: a class, and a line in each of the tables of positions


class ALiBi(NoPosition):
    """Scores fall with the distance between two patches, at a slope for each head (Press et al., 2022,
    arXiv:2108.12409; for images as in MAE-like models: Fuller et al., 2022, arXiv:2210.13512)."""

    def __init__(self, *, embed_dim: int, num_heads: int, grid: Grid, num_prefix_tokens: int):
        super().__init__()
        self.grid, self.num_prefix_tokens = grid, num_prefix_tokens
        self.register_buffer("slopes", 2.0 ** -(8 * torch.arange(1, num_heads + 1) / num_heads), persistent=False)

    def bias(self, attn_mask, grid):
        row, column = (place.float() for place in places(grid or self.grid, self.slopes.device))
        distance = ((row[:, None] - row) ** 2 + (column[:, None] - column) ** 2).sqrt()  # (N, N)
        bias = -self.slopes[:, None, None] * distance  # (h, N, N)
        bias = F.pad(bias, (self.num_prefix_tokens, 0) * 2)[None]
        return bias if attn_mask is None else mask_scores(bias, attn_mask)


class FasterRotary(RotaryPosition):
    """Another function than the one that it inherits from, with the same tensors."""

    temperature = 50.0


@pytest.fixture
def positions(monkeypatch):
    for name, kind in (("alibi", ALiBi), ("faster", FasterRotary)):
        monkeypatch.setitem(POSITIONS, name, Position)
        monkeypatch.setitem(ATTENTION_POSITIONS, name, kind)


@pytest.mark.usefixtures("positions")
@pytest.mark.parametrize("position", ["alibi", "faster"])
@pytest.mark.parametrize("export", [export_timm, export_huggingface])
def test_an_added_position_is_exported_nowhere_until_it_says_where(position, export):
    model = VisionTransformer(**vit_options(position=position))
    with pytest.raises(ConfigError, match=rf"has no {position} positions \(model\.position\): .* try the other format"):
        export(model, ["a"] * 10, ExportedPreprocessing([0.5], [0.2], None, 3))


@pytest.mark.usefixtures("positions")
def test_a_false_declaration_is_found_out(monkeypatch, tmp_path):
    monkeypatch.setattr(FasterRotary, "exports", RotaryPosition.exports, raising=False)
    torch.manual_seed(0)
    model = VisionTransformer(**vit_options(position="faster")).eval()
    torch.nn.init.normal_(model.head.weight)
    made = export_timm(
        model, [f"class {k}" for k in range(10)], ExportedPreprocessing([0.5], [0.2], None, Resampling.BICUBIC)
    )
    write(tmp_path, made)
    twin = VisionTransformer(**vit_options(position="faster"))
    with pytest.raises(ConfigError, match="computes with position rotary, but the model with faster"):
        check_export(tmp_path, made, model, twin, open_timm)


@pytest.mark.usefixtures("positions")
def test_a_run_with_an_added_position_trains_and_loads_as_any_other(cli):
    options = [*FEW, "model.position=alibi", "trainer.max_epochs=-1", "trainer.max_steps=2"]
    run = cli("train", *options, folder="run")
    assert run.status == 0, run.err
    finer = cli("train", *options, "model.pretrained=run", "data.image_size=16", folder="finer")
    assert finer.status == 0, finer.err
    assert "1 resized" not in finer.out
    other = cli("train", *options, "model.pretrained=run", "model.position=relative", folder="other")
    assert other.status == 4
    assert "position alibi" in other.err
    exported = cli("export", "run=run", "output=out")
    assert exported.status == 2
    assert "alibi positions (model.position)" in exported.err
    assert not Path("out").exists()


# -- a column of predictions: a function in COLUMNS


def entropy(probabilities):
    """(B, K) -> (B,), in nats"""
    return torch.special.entr(probabilities).sum(dim=1)


def test_an_added_column_is_in_both_files_in_the_terminal_and_in_python(cli, monkeypatch):
    monkeypatch.setitem(COLUMNS, "entropy", entropy)
    options = [*FEW, "trainer.max_epochs=-1", "trainer.max_steps=2", "~callbacks.model_views"]
    run = cli("train", *options, folder="run", pictures=True)
    assert run.status == 0, run.err
    scored = list(csv.DictReader((run.folder / "test_predictions.csv").read_text().splitlines()))
    heads = ["index", "name", "true", "predicted", "probability", "loss", "entropy", "novelty", "none_of_these"]
    assert list(scored[0]) == heads
    assert all(0 < float(row["entropy"]) < math.log(10) for row in scored)
    Path("new").mkdir()
    for number in range(2):
        Image.new("L", (8, 8), 100 * number).save(f"new/{number}.png")
    said = cli("predict", "run=run", "images=new", "top_k=3", "output=said.csv")
    assert said.status == 0, said.err
    rows = list(csv.DictReader(Path("said.csv").read_text().splitlines()))
    ranks = [f"{kind}_{rank}" for rank in (1, 2, 3) for kind in ("class", "probability")]
    assert list(rows[0]) == ["image", *ranks, "novelty", "none_of_these", "entropy"]
    assert f"entropy {float(rows[0]['entropy']):.4g}" in " ".join(said.out.split())
    found = vitlab.load("run", device="cpu").predict("new", top_k=3)
    for row, one in zip(rows, found, strict=True):
        assert {key: str(value) for key, value in one.columns().items()} == {
            k: row[k] for k in (*ranks, "novelty", "none_of_these", "entropy")
        }
