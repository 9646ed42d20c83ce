"""Images of none of the classes are told by how far their features are from all classes."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import refuses
from PIL import Image
from safetensors.torch import save_file
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import LedoitWolf

import vitlab
from vitlab.callbacks.calibration import LEAST_OF_A_CLASS, MOST, choose_places
from vitlab.callbacks.known_classes_file import FILE, read_known_classes, save_known_classes
from vitlab.data.targets import OneClass
from vitlab.tasks.known_classes import KnownClasses

CENTRES = torch.tensor([[0.0, 0, 0], [10, 0, 0], [0, 10, 0]])


def draw(seed, count=300):
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(count) % 3
    return CENTRES[target] + torch.randn(count, 3, generator=generator) * torch.tensor([1.0, 0.5, 2.0]), target


def test_distances_are_those_of_scipy():
    features, target = draw(0)
    known = KnownClasses.fit(features, target)
    means = np.stack([features[target == k].numpy().mean(axis=0) for k in range(3)])
    mean = features.numpy().mean(axis=0)
    within, among = (
        LedoitWolf(assume_centered=True).fit(features.numpy() - centre).precision_ for centre in (means[target], mean)
    )
    asked = np.array([[1.0, 2, 3], [9, 0, 1], [50, 50, 50]], np.float32)
    expected = [
        min(mahalanobis(one, own, within) for own in means) ** 2 - mahalanobis(one, mean, among) ** 2 for one in asked
    ]
    assert known.measure(torch.from_numpy(asked)).tolist() == pytest.approx(expected, rel=1e-4)


def test_features_far_from_zero_lose_no_digits():
    features, target = draw(0)
    near, far = (KnownClasses.fit(f, target).accept(f, 0.05) for f in (features, features + 1000))
    torch.testing.assert_close(
        far.compute_novelty(draw(2)[0] + 1000), near.compute_novelty(draw(2)[0]), rtol=1e-3, atol=1e-3
    )


def test_classes_that_overlap_lose_no_digits():
    features = torch.randn(700, 192, generator=torch.Generator().manual_seed(0))
    known = KnownClasses.fit(features, torch.arange(700) % 5).accept(features, 0.05)
    exact = KnownClasses._make(part.double() if isinstance(part, torch.Tensor) else part for part in known)
    apart = known.compute_novelty(features).double() - exact.scale(exact.measure(features.double()))
    assert apart.abs().max() < 1e-5


def test_the_median_of_known_images_is_0_and_the_threshold_1():
    known = KnownClasses.fit(*draw(0)).accept(draw(1)[0], 0.05)
    novelty = known.compute_novelty(draw(1)[0])
    assert novelty.quantile(torch.tensor([0.5, 0.95])).tolist() == pytest.approx([0, 1], abs=1e-4)


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_the_stated_share_of_known_images_is_taken_for_unknown(rate):
    known = KnownClasses.fit(*draw(0)).accept(draw(1, 3000)[0], rate)
    assert float((known.compute_novelty(draw(1, 3000)[0]) > 1).float().mean()) == pytest.approx(rate, abs=1e-3)
    assert float((known.compute_novelty(draw(2, 3000)[0]) > 1).float().mean()) == pytest.approx(rate, abs=0.02)
    assert (known.compute_novelty(torch.tensor([[5.0, 5, 0], [100, 0, 0]])) > 1).all()


def test_autocast_does_not_round_distances():
    known = KnownClasses.fit(*draw(0)).accept(draw(1)[0], 0.05)
    with torch.autocast("cpu", torch.bfloat16):
        found = known.compute_novelty(draw(2)[0])
    assert torch.equal(found, known.compute_novelty(draw(2)[0]))


def test_fewer_images_than_features_and_features_that_never_change_give_numbers():
    features = torch.cat([torch.randn(12, 30, generator=torch.Generator().manual_seed(0)), torch.ones(12, 2)], dim=1)
    known = KnownClasses.fit(features, torch.arange(12) % 4).accept(features, 0.05)
    assert known.compute_novelty(features).isfinite().all()


def test_a_model_that_gives_each_image_the_same_features_finds_none_unusual():
    features = torch.ones(20, 5)
    known = KnownClasses.fit(features, torch.arange(20) % 2).accept(features, 0.05)
    assert known.compute_novelty(features).tolist() == [0] * 20


def test_images_are_chosen_in_equal_shares():
    assert choose_places(OneClass(np.array([0, 1, 1, 0]))) == [0, 1, 2, 3]
    many = np.repeat(np.arange(4), 5000)
    assert np.bincount(many[choose_places(OneClass(many))]).tolist() == [MOST // 4] * 4
    finest = np.repeat(np.arange(MOST), 3)
    assert len(choose_places(OneClass(finest))) == 3 * MOST
    assert LEAST_OF_A_CLASS > 3


def test_what_is_written_is_read(tmp_path):
    known = KnownClasses.fit(*draw(0)).accept(draw(1)[0], 0.05)
    save_known_classes(SimpleNamespace(is_global_zero=True, default_root_dir=tmp_path), known)
    again = read_known_classes(tmp_path)
    assert torch.equal(again.compute_novelty(draw(2)[0]), known.compute_novelty(draw(2)[0]))
    assert read_known_classes(tmp_path / "nowhere") is None


def write_texture(path):
    stripes = 127 + 127 * np.sign(np.sin(np.arange(32) / 1.5))
    Image.fromarray(np.tile(stripes.astype(np.uint8), (32, 1))).save(path)


def test_a_run_tells_textures_from_digits_in_each_command_and_in_python(cli, digits_run):
    result = json.loads((digits_run / "result.json").read_text())
    assert result["calibration"]["false_alarm_rate"] == 0.05
    rows = list(csv.DictReader((digits_run / "test_predictions.csv").read_text().splitlines()))
    beyond = np.mean([float(row["novelty"]) > 1 for row in rows])
    assert [row["none_of_these"] == "yes" for row in rows] == [float(row["novelty"]) > 1 for row in rows]
    assert result["calibration"]["test_none_of_these"] == pytest.approx(beyond)
    assert beyond < 0.2  # 0.05 of validation, and the test images are others
    Path("asked").mkdir()
    shutil.copy(digits_run / "test_image.png", "asked/digit.png")
    write_texture("asked/texture.png")
    said = cli("predict", f"run={digits_run}", "images=asked", "output=said.csv")
    assert said.status == 0, said.err
    digit, texture = csv.DictReader(Path("said.csv").read_text().splitlines())
    assert (digit["none_of_these"], texture["none_of_these"]) == ("no", "yes")
    assert "probably none of these" in " ".join(said.out.split())
    assert "1 of 2 images: probably none of these classes" in said.out
    found = vitlab.load(digits_run, device="cpu").predict("asked")
    assert [one.none_of_these for one in found] == [False, True]
    assert [one.novelty for one in found] == pytest.approx(
        [float(digit["novelty"]), float(texture["novelty"])],
        abs=1e-4,  # it is written with four digits
    )
    again = cli("evaluate", f"run={digits_run}", "output=again")
    assert again.status == 0, again.err
    of_evaluate = list(csv.DictReader(Path("again/test_predictions.csv").read_text().splitlines()))
    assert [row["novelty"] for row in of_evaluate] == pytest.approx([row["novelty"] for row in rows])


def test_a_file_of_an_earlier_test_is_not_taken_for_that_of_a_test_without_one(cli, tmp_path, short_run):
    run = shutil.copytree(short_run, tmp_path / "run")
    again = cli("train", "resume=run", "trainer.max_epochs=3", "callbacks.calibration.false_alarm_rate=null")
    assert again.status == 0, again.err
    first, both = (json.loads((folder / "result.json").read_text())["seconds"] for folder in (short_run, run))
    assert both > first  # those of both starts
    assert (run / FILE).exists()
    assert vitlab.load(run, device="cpu").predict(np.zeros((8, 8), np.uint8))[0].novelty is None


@pytest.mark.parametrize("damage", ["cut", "other tensors", "a folder"])
def test_a_damaged_file_is_refused_by_name(cli, tmp_path, short_run, damage):
    run = shutil.copytree(short_run, tmp_path / "run")
    file = run / FILE
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    elif damage == "other tensors":
        save_file({"means": torch.ones(3)}, file)
    else:
        file.unlink()
        file.mkdir()
    Image.new("L", (8, 8)).save("a.png")
    assert refuses(cli("predict", "run=run", "images=a.png"), FILE)
