"""The command explain: what it writes, and what it refuses."""

import csv
import re

import pytest
from PIL import Image

from vitlab.programs.explain import MOST_BYTES


@pytest.fixture
def digit(tmp_path):
    for number in (1, 2, 3):
        Image.new("L", (8, 8), 60 * number).save(tmp_path / f"{number}.png")
    return tmp_path / "1.png"


@pytest.mark.ci
@pytest.mark.slow
def test_a_run_is_explained_in_one_file(cli, tmp_path, digits_run, digit):
    run = cli("explain", f"run={digits_run}", f"images={tmp_path}/*.png", "output=page.html")
    assert run.status == 0, run.err
    assert "2 of 3 images" in run.out
    page = (tmp_path / "page.html").read_bytes()
    assert len(page) < MOST_BYTES
    assert b'"name":"1.png"' in page
    again = cli("explain", f"run={digits_run}", f"images={digit}", "output=page.html")
    assert again.status == 2
    assert "overwrite=true" in again.err
    assert (tmp_path / "page.html").read_bytes() == page
    inside = cli("explain", f"run={digits_run}", f"images={digit}")
    assert inside.status == 0, inside.err
    (found,) = (digits_run / "explain").rglob("explained.html")
    assert str(found.relative_to(digits_run)) in inside.out
    assert re.search(r"0\.\d\d MB, 1 image", inside.out)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["images=nowhere"], 3, ["images=nowhere"]),
        (["images=broken.png"], 3, ["broken.png", "repair or remove"]),
        (["images=1.png", "output=page.pdf"], 2, ["page.pdf", ".html"]),
        (["images=1.png", "output=1.png", "overwrite=true"], 2, ["1.png", "name another place"]),
        (["images=1.png", "num_images=0"], 2, ["num_images 0"]),
        (["run=nowhere", "images=1.png"], 4, ["nowhere"]),
        (["run=empty", "images=1.png"], 4, ["empty"]),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_sentence(cli, tmp_path, digits_run, digit, arguments, status, said):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    arguments = arguments if any(part.startswith("run=") for part in arguments) else [f"run={digits_run}", *arguments]
    run = cli("explain", *arguments)
    lines = [line for line in run.err.splitlines() if line.strip() and "arn" not in line]
    assert run.status == status, run.err
    assert len(lines) == 1, run.err
    assert all(word in lines[0] for word in said), lines
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=resnet20"], "needs a Vision Transformer"),
        (["task=masked_autoencoding", "model=mae_xs4", "model.encoder.depth=1"], "without classes"),
        (["model.position_place=every_layer"], "position_place"),
    ],
    ids=["no attention", "no classes", "a variant"],
)
def test_a_model_that_cannot_be_explained_is_refused_by_name(cli, tmp_path, digit, words, said):
    trained = cli("train", *words, "trainer.max_steps=1", "+trainer.limit_test_batches=1", folder="run")
    assert trained.status == 0, trained.err
    run = cli("explain", "run=run", f"images={digit}", "output=page.html")
    assert run.status == 2, run.err
    assert said in run.err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_captions_are_compared_with_an_image(cli, tmp_path, digits_run, digit):
    short = ["recipe=digits_contrastive", "trainer.max_epochs=null", "trainer.max_steps=2", "model.encoder.depth=1"]
    trained = cli("train", *short, "+trainer.limit_test_batches=1", folder="run", tiny=False)
    assert trained.status == 0, trained.err
    (tmp_path / "captions.txt").write_text("three\nseven\n")
    run = cli("explain", "run=run", f"images={digit}", "texts=captions.txt", "output=page.html")
    assert run.status == 0, run.err
    assert re.search(rb'"classes":\["(three","seven|seven","three)"\]', (tmp_path / "page.html").read_bytes())
    named = cli("explain", "run=run", f"images={digit}", "output=named.html")
    assert named.status == 0, named.err
    (tmp_path / "captions.txt").write_text("§\n")
    unknown = cli("explain", "run=run", f"images={digit}", "texts=captions.txt", "output=other.html")
    assert unknown.status == 3, unknown.err
    other = cli("explain", f"run={digits_run}", f"images={digit}", "texts=captions.txt")
    assert other.status == 2
    assert "texts= needs a run of images and texts" in other.err


@pytest.mark.slow
@pytest.mark.ci
def test_a_reader_is_explained_with_what_it_writes(cli, tmp_path):
    short = ["recipe=digit_lines", "trainer.max_epochs=null", "trainer.max_steps=2", "model.encoder.depth=1"]
    trained = cli("train", *short, "data.source.num_lines=128", "data.source.num_evaluated=8", folder="run", tiny=False)
    assert trained.status == 0, trained.err
    for width, name in [(60, "a"), (60, "b"), (140, "c")]:
        Image.effect_noise((width, 20), 80).save(tmp_path / f"{name}.png")
    images = f"images={tmp_path}/[abc].png"
    run = cli("explain", "run=run", images, "num_images=3", "output=page.html")
    assert run.status == 0, run.err
    assert "1 of 3 images left out, which are not 16 x 48 pixels" in run.out
    page = (tmp_path / "page.html").read_text()
    predicted = cli("predict", "run=run", images, "output=texts.csv")
    assert predicted.status == 0, predicted.err
    for row in csv.DictReader((tmp_path / "texts.csv").read_text().splitlines()[:3]):
        assert f'"text":"{row["text"]}"' in page, row
    visualized = cli("explain", "run=run", images, "texts=captions.txt")
    assert visualized.status == 2
    assert "texts= needs a run of images and texts" in visualized.err
