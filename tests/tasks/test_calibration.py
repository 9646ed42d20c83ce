"""A known temperature is found, measures equal those of other libraries, and the test split has no part in it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

import vitlab
from vitlab.checkpoints.run_identity import read_checkpoint
from vitlab.tasks.calibration import fit_temperature, measure_calibration
from vitlab.tasks.label_metrics import build_metrics

GENERATOR = torch.Generator().manual_seed(0)
CALIBRATED = 2 * torch.randn(20_000, 5, generator=GENERATOR)
CLASSES = torch.multinomial(CALIBRATED.softmax(dim=1), 1, generator=GENERATOR)[:, 0]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_a_known_temperature_is_found(temperature):
    assert fit_temperature(temperature * CALIBRATED, CLASSES) == pytest.approx(temperature, rel=0.03)
    answers = torch.bernoulli(CALIBRATED.sigmoid(), generator=torch.Generator().manual_seed(1))
    assert fit_temperature(temperature * CALIBRATED, answers) == pytest.approx(temperature, rel=0.03)


def test_probabilities_at_the_temperature_are_calibrated():
    before = measure_calibration((3 * CALIBRATED).softmax(dim=1), CLASSES)
    after = measure_calibration((3 * CALIBRATED / fit_temperature(3 * CALIBRATED, CLASSES)).softmax(dim=1), CLASSES)
    assert before["ece"] > 0.15
    assert all(after[name] < before[name] for name in before)
    assert after["ece"] < 0.015
    assert after["adaptive_ece"] < 0.015


def test_a_split_without_a_mistake_gives_no_certainty():
    logits = 5.0 * torch.eye(10)[torch.arange(50) % 10]
    temperature = fit_temperature(logits, torch.arange(50) % 10)
    assert 0.3 < temperature < 1
    assert (logits / temperature).softmax(dim=1).max() < 1 - 1e-7


def test_measures_equal_those_of_other_libraries():
    p = CALIBRATED[:3000].softmax(dim=1)
    found = measure_calibration(p, CLASSES[:3000])
    assert found["ece"] == pytest.approx(float(multiclass_calibration_error(p, CLASSES[:3000], 5, n_bins=15)), abs=1e-6)
    assert found["nll"] == pytest.approx(log_loss(CLASSES[:3000].numpy(), p.double().numpy()), abs=1e-6)
    two = torch.stack([1 - p[:, 0], p[:, 0]], dim=1)
    of_first = (CLASSES[:3000] == 0).long()
    expected = 2 * brier_score_loss(of_first.numpy(), p[:, 0].numpy())
    assert measure_calibration(two, of_first)["brier"] == pytest.approx(expected, abs=1e-6)
    several = measure_calibration(p[:, :1], of_first[:, None])
    assert several == pytest.approx(measure_calibration(two, of_first), abs=1e-9)


def test_the_metrics_of_a_test_are_the_same_measures():
    p = CALIBRATED[:3000].softmax(dim=1)
    metrics = build_metrics("one_class", "test", 5)
    for name, expected in measure_calibration(p, CLASSES[:3000]).items():
        for part, own in zip(p.split(700), CLASSES[:3000].split(700), strict=True):
            metrics[name].update(part, own)
        assert float(metrics[name].compute()) == pytest.approx(expected, abs=1e-5), name


def test_bins_of_equal_counts():
    p = torch.tensor([0.6, 0.7, 0.8, 0.9]).repeat(15)
    right = torch.arange(60) % 3 == 0
    found = measure_calibration(torch.stack([p, 1 - p], dim=1), (~right).long())
    order = np.argsort(p.numpy(), kind="stable")
    parts = np.array_split(order, 15)
    gaps = [abs((right.numpy()[part] - p.numpy()[part]).sum()) for part in parts]
    assert found["adaptive_ece"] == pytest.approx(sum(gaps) / 60, abs=0.08)  # ties may fall into either bin


def test_a_run_is_calibrated_and_all_that_reads_it_agrees(cli, digits_run):
    result = json.loads((digits_run / "result.json").read_text())
    calibration = result["calibration"]
    assert set(calibration["before"]) == {"ece", "adaptive_ece", "brier", "nll"}
    assert calibration["after"]["nll"] <= calibration["before"]["nll"] + 1e-3
    assert calibration["samples"] == 180
    again = cli("evaluate", f"run={digits_run}", "output=again")
    assert again.status == 0, again.err
    scored = json.loads(Path("again/evaluation_test.json").read_text())
    assert scored["test/ece"] == pytest.approx(result["test"]["test/ece"], abs=1e-6)


def test_the_test_split_has_no_part_in_it(digits_run):
    """The temperature of the run is that of its validation logits, computed anew."""
    run = vitlab.load(digits_run, device="cpu")
    datamodule = run._saved.datamodule()
    datamodule.setup()
    split = datamodule.splits["val"]
    images = [split.pool.load(int(index)) for index in split.indices]
    with torch.no_grad():
        logits = torch.cat([run.model(run.inputs(images[k : k + 60])) for k in range(0, len(images), 60)])
    expected = fit_temperature(logits, split.pool.targets[split.indices].collate())
    assert run._saved.temperature == pytest.approx(expected, rel=1e-3)
    other = run._saved.path.with_name("latest.ckpt")
    steps = {path.name: read_checkpoint(path)["global_step"] for path in (run.path, other)}
    assert (vitlab.load(other)._saved.temperature is None) == (steps["best.ckpt"] != steps["latest.ckpt"])
