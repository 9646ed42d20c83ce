"""python src/survey.py, as a user runs it."""

import csv
import json

import numpy as np
import pytest
import yaml
from conftest import image_folder
from PIL import Image

from vitlab.config.home import CONF


@pytest.fixture
def photos(tmp_path):
    """Three classes of 10 photos: two copies, one of them in the test split, and two files that cannot be read."""
    random = np.random.RandomState(0)
    for split, count in (("train", 10), ("test", 4)):
        for name in ("ant", "bee", "cat"):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for k in range(count):
                pixels = random.randint(0, 256, (20 + k, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).convert("L" if k == 1 else "RGB").save(folder / f"{k}.png")
    train, test = tmp_path / "photos" / "train", tmp_path / "photos" / "test"
    (train / "bee" / "copy.png").write_bytes((train / "ant" / "3.png").read_bytes())
    (test / "cat" / "copy.png").write_bytes((train / "cat" / "5.png").read_bytes())
    (train / "ant" / "text.png").write_text("not an image")
    damaged = test / "bee" / "0.png"
    damaged.write_bytes(damaged.read_bytes()[:200])
    return tmp_path / "photos"


def rows(path):
    return list(csv.DictReader(path.open()))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_data_set_with_faults(cli, photos, tmp_path, num_workers):
    run = cli(
        "survey",
        "data=folder",
        f"data.source.root={photos}",
        f"data.source.index_root={tmp_path / 'index'}",
        "data.num_classes=3",
        "data.image_size=16",
        f"data.loading.num_workers={num_workers}",
        "output=here",
    )
    assert run.status == 0, run.err
    report = json.loads((tmp_path / "here" / "survey.json").read_text())
    assert sum(report["images"].values()) == 32 + 13
    assert report["images"]["test"] == 13
    assert sum(sum(numbers) for numbers in report["classes"].values()) == 45
    assert report["modes"] == {"RGB": 37, "L": 6}
    assert "repair or remove them, or train with data.loading.on_bad_image=skip" in run.out
    assert sum(report["unreadable"].values()) == 2
    assert {row["image"].removeprefix(str(photos)) for row in rows(tmp_path / "here" / "unreadable.csv")} == {
        "/train/ant/text.png",
        "/test/bee/0.png",
    }
    groups = {}
    for row in rows(tmp_path / "here" / "identical.csv"):
        groups.setdefault(row["group"], []).append((row["image"].removeprefix(str(photos)), row["class"]))
    assert sorted(map(sorted, groups.values())) == [
        [("/test/cat/copy.png", "cat"), ("/train/cat/5.png", "cat")],
        [("/train/ant/3.png", "ant"), ("/train/bee/copy.png", "bee")],
    ]
    assert any("test in" in pair and count == 1 for pair, count in report["overlap"].items())
    assert "1 of them with different labels" in run.out
    assert "text.png: no image that Pillow knows" in run.out
    for name in ("classes.csv", "survey.png"):
        assert (tmp_path / "here" / name).stat().st_size > 20


@pytest.mark.slow
def test_mean_and_std_are_ready_to_paste(cli, tmp_path):
    """conf/data/digits.yaml holds those of the images as they are stored, 8x8."""
    run = cli("survey", "data.image_size=8", "output=here")
    assert run.status == 0, run.err
    assert "identical   no two images" in run.out
    words = [word.strip("'") for word in run.out.split() if word.startswith("'data.")]
    config = yaml.safe_load((CONF / "data" / "digits.yaml").read_text())
    for word, value in zip(words, (config["mean"][0], config["std"][0]), strict=True):
        assert float(word.split("[")[1].strip("]")) == pytest.approx(value, abs=3e-4)
    again = cli("survey", "output=there", *words)
    assert again.status == 0, again.err


def test_nothing_to_read_is_an_error(cli, tmp_path):
    folder = tmp_path / "photos" / "train" / "ant"
    folder.mkdir(parents=True)
    for k in range(20):
        (folder / f"{k}.png").write_text("not an image")
    run = cli(
        "survey",
        "data=folder",
        f"data.source.root={tmp_path / 'photos'}",
        f"data.source.index_root={tmp_path / 'index'}",
        "data.num_classes=1",
    )
    assert run.status == 3
    assert "no image of the train split can be read, the first is " in run.err
    assert ".png: " in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize(("data", "words"), [("digit_scenes", "a caption each"), ("digit_questions", "answer")])
def test_images_without_classes_are_refused_before_they_are_read(cli, monkeypatch, data, words):
    monkeypatch.delattr("vitlab.programs.survey.survey_split")
    run = cli("survey", f"data={data}", "data.loading.num_workers=0")
    assert run.status == 2
    assert "survey needs images with classes, but this data has images with" in run.err
    assert words in run.err


@pytest.mark.parametrize(("classes", "count"), [(40, 1), (1, 1), (2, 2)])
def test_images_that_are_too_few_to_divide(cli, tmp_path, picture, classes, count):
    for k in range(classes * count):
        picture(tmp_path / "photos" / f"class{k % classes}" / f"{k}.png", seed=k)
    own = [f"data.source.root={tmp_path / 'photos'}", f"data.source.index_root={tmp_path / 'index'}"]
    run = cli("survey", "data=folder", *own, "data.loading.num_workers=0", "output=here")
    assert run.status == 0, run.err
    report = json.loads((tmp_path / "here" / "survey.json").read_text())
    assert report["images"] == {"train": classes * count}
    assert len(report["classes"]) == classes


def test_images_of_several_classes(cli, tmp_path):
    run = cli(
        "survey", "data=synthetic_multilabel", "data.source.num_samples=60", "data.loading.num_workers=0", "output=here"
    )
    assert run.status == 0, run.err
    report = json.loads((tmp_path / "here" / "survey.json").read_text())
    assert sum(report["images"].values()) == 60
    assert 60 < sum(sum(numbers) for numbers in report["classes"].values()) < 120  # none to three an image
    assert (tmp_path / "here" / "survey.png").is_file()


def test_copies_of_an_image_with_several_classes(cli, tmp_path):
    images = np.random.RandomState(0).randint(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    labels = np.zeros((20, 3), int)
    labels[:4] = [[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 1, 0]]
    images[1], images[3] = images[0], images[2]
    parts = {"train": slice(None), "val": slice(4, None), "test": slice(1)}
    content = {f"{split}_images": images[part] for split, part in parts.items()}
    content |= {f"{split}_labels": labels[part] for split, part in parts.items()}
    np.savez(tmp_path / "data.npz", **content)
    options = [f"data.source.images.train={tmp_path / 'data.npz'}", "data.image_size=8", "data.num_classes=3"]
    run = cli("survey", "data=arrays", *options, "data.loading.num_workers=0", "output=here")
    assert run.status == 0, run.err
    assert "1 group of images within splits, 1 of them with different labels" in run.out
    found = rows(tmp_path / "here" / "identical.csv")
    assert [row["class"] for row in found if row["image"].endswith((" 0", " 1"))][:3] == ["0, 1"] * 3
    assert "none" in {row["class"] for row in found}


def test_a_survey_that_is_out_of_time_knows_what_it_has_not_read(cli, tmp_path):
    """One piece of 64 images is read of each split, from anywhere in it."""
    image_folder(tmp_path / "many", splits=("train", "test"), count=100)
    words = ["data=folder", f"data.source.root={tmp_path / 'many'}", "model=vit_mu4", "data.loading.num_workers=0"]
    run = cli("survey", *words, "seconds=0", "output=surveyed", tiny=False)
    assert run.status == 0, run.err
    assert "of 180 images of train in time" in run.out
    report = json.loads((tmp_path / "surveyed" / "survey.json").read_text())
    assert report["images"]["train"] == 180
    assert sum(report["sizes"].values()) < 380
    assert sum(report["unreadable"].values()) == 0
    assert report["identical"]["groups"] == 0 or report["identical"]["images"] < 380
