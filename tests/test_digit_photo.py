"""docs/digit_photo.md: its lines prepare the photo of a digit, which a run on the digits then recognises."""

import csv
import math
import re
import shlex

import numpy as np
import pytest
from conftest import BARE, finished
from PIL import Image, ImageDraw

from vitlab.config.home import ROOT

PAGE = (ROOT / "docs" / "digit_photo.md").read_text(encoding="utf-8")
SHOW, PREPARE = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
BEFORE, AFTER = re.findall(r"^python src/predict.py (.*)$", PAGE, re.M)


def draw_arc(x, y, width, height, start, end):
    angles = np.radians(np.arange(start, end + 1, 10))
    return [(x + width * math.cos(angle), y + height * math.sin(angle)) for angle in angles]


STROKES = {  # in a box of 1 by 1
    2: [*draw_arc(0.5, 0.28, 0.38, 0.28, 180, 400), (0.1, 1), (0.9, 1)],
    3: draw_arc(0.45, 0.25, 0.38, 0.25, 200, 450) + draw_arc(0.45, 0.75, 0.42, 0.25, 270, 520),
    5: [(0.85, 0), (0.25, 0), (0.2, 0.42), *draw_arc(0.45, 0.68, 0.4, 0.32, 230, 520)],
}


def draw_photo(digit):
    """A dark digit off the middle of light, noisy paper that gets darker to one corner, 600 by 800 pixels."""
    y, x = np.mgrid[:800, :600]
    paper = 215 - x / 10 - y / 20 + np.random.RandomState(digit).randn(800, 600) * 5
    photo = Image.fromarray(paper.clip(0, 255).astype(np.uint8)).convert("RGB")
    places = [(330 + 150 * x, 420 + 225 * y) for x, y in STROKES[digit]]
    ImageDraw.Draw(photo).line(places, fill=(40, 40, 70), width=24, joint="curve")
    return photo


def ask(cli, words):
    """The most probable class, and whether the image is told to be none of them, by a command of the page."""
    done = cli("predict", *shlex.split(words), "output=said.csv", "overwrite=true")
    assert done.status == 0, done.err
    with open("said.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    return int(row["class_1"]), row["none_of_these"], "probably none of these classes" in done.out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The default run, but of 6 epochs."""
    folder = tmp_path_factory.mktemp("photo") / "runs" / "digits" / "run"
    folder.parent.mkdir(parents=True)
    words = ["trainer.max_epochs=6", "trainer.precision=32-true", "logger=none", "trainer=cpu"]
    finished(folder, *BARE, *words, tiny=False)
    return folder.parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_photo_is_recognised_once_it_is_prepared(cli, own):
    before, after = [], []
    for digit in STROKES:
        draw_photo(digit).save("photo.jpg")
        before.append(ask(cli, BEFORE))
        exec(compile(PREPARE, "prepare.py", "exec"), {})
        after.append(ask(cli, AFTER))
    assert len({digit for digit, _, _ in before}) == 1  # whatever is on the photo
    assert all(unknown == "yes" and warned for _, unknown, warned in before)
    assert [digit for digit, _, _ in after] == list(STROKES)


def test_a_prepared_photo_looks_like_a_training_image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw_photo(5).save("photo.jpg")
    exec(compile(SHOW + PREPARE, "prepare.py", "exec"), {})
    digit, training = Image.open("digit.png"), Image.open("training_digit.png")
    assert (digit.size, digit.mode, training.mode) == ((8, 8), "L", "L")
    left, top, right, bottom = digit.getbbox()
    assert (top, bottom) == (0, 8)
    assert abs(left - (8 - right)) <= 1
    assert np.asarray(digit)[:, [0, -1]].max() == 0  # black beside the digit
    assert np.asarray(digit).max() > 200
