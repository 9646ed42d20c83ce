"""The names of files are taken as they are, whatever Hydra's grammar makes of their letters."""

import csv

import pytest
from PIL import Image

NAMES = [
    "x (1).png",
    "a=b.png",
    "ünï.png",
    "a,b.png",
    "it's.png",
    'a"b.png',
    "$x.png",
    "[0-3].png",
    "a{b}c.png",
    "~.png",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_image_of_that_name(cli, digits_run, tmp_path, name):
    Image.new("L", (8, 8), 128).save(tmp_path / name)
    run = cli("predict", f"run={digits_run}", f"images={name}", "output=p.csv")
    assert run.status == 0, run.err
    with open(tmp_path / "p.csv", newline="", encoding="utf-8") as lines:
        assert [row["image"] for row in csv.DictReader(lines)] == [name]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("[0-3]/*.png", ["0/a.png", "3/a.png"]),
        ("5/*.{png,jpg}", ["5/a.jpg", "5/a.png"]),
        ("{0,5}/a.png", ["0/a.png", "5/a.png"]),
    ],
)
def test_patterns(cli, digits_run, tmp_path, pattern, found):
    for place in ("0/a.png", "3/a.png", "5/a.png", "5/a.jpg"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), 128).save(tmp_path / place)
    run = cli("predict", f"run={digits_run}", f"images={pattern}", "output=p.csv")
    assert run.status == 0, run.err
    with open(tmp_path / "p.csv", newline="") as lines:
        assert [row["image"] for row in csv.DictReader(lines)] == found


def test_folders_of_a_data_set(cli, tmp_path):
    from conftest import image_folder

    image_folder(tmp_path / "my images (2024), a=b")
    options = ["data=folder", "data.source.root=my images (2024), a=b", "data.num_classes=2", "data.image_size=8"]
    run = cli("train", *options, "global_batch_size=4", "trainer.max_steps=1", "trainer.max_epochs=-1", folder="run")
    assert run.status == 0, run.err
