"""What null in a config has come to mean: found before the run, kept with it, read by all that come after."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import evaluated
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from PIL import Image

from vitlab.checkpoints import file
from vitlab.config.arguments import format_override, quote_value
from vitlab.config.build import build
from vitlab.config.found import fill_in
from vitlab.config.resume import build_resumed_config
from vitlab.config.stored_config import make_portable, parse_saved_config
from vitlab.data import Digits
from vitlab.data.colours import measure_colours
from vitlab.data.images.moments import compute_moments, mean_and_std

FOLDER = ["data=folder", "data.source.root=images", "data.source.index_root=index", "data.image_size=16"]
FOLDER += ["data.mean=null", "data.std=null", "mixing=mixup", "global_batch_size=16", "data.in_chans=1"]
FOLDER += ["data.images.mode=L", "data.loading.num_workers=0", "trainer.max_steps=3"]


@pytest.fixture
def images(tmp_path):
    """A few digits of three classes as PNGs."""
    pool = Digits().open()["train"]
    counts = dict.fromkeys(range(3), 0)
    for i, k in enumerate(pool.targets.tolist()):
        if k < 3 and counts[k] < 40:
            folder = tmp_path / "images" / "train" / f"digit {k}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pool.load(i)).save(folder / f"{i}.png")
            counts[k] += 1
    return tmp_path / "images"


def test_classes_and_colours_are_found_and_kept(cli, images, tmp_path):
    run = cli("train", *FOLDER, folder="run")
    assert run.status == 0, run.err
    (line,) = [line for line in run.out.splitlines() if line.startswith("found")]
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    found = saved["found"]
    assert (found["num_classes"], saved["data"]["num_classes"], saved["model"]["num_classes"]) == (3, 3, 3)
    assert f"data.num_classes=3 'data.mean=[{found['mean'][0]}]'" in line
    checkpoint = file.read(tmp_path / "run" / "checkpoints" / "latest.ckpt")["run"]["config"]
    assert checkpoint["found"] == found
    assert checkpoint["data"]["mean"] == found["mean"]

    assert cli("evaluate", "run=run").status == 0
    one = next(images.rglob("*.png"))
    assert cli("predict", "run=run", f"images={one}", "output=said.csv").status == 0
    tested = json.loads((tmp_path / "run" / "result.json").read_text())["test"]
    again = evaluated(tmp_path / "run")
    assert {name: again[name] for name in tested} == pytest.approx(tested, abs=1e-5)


@pytest.mark.ci
@pytest.mark.slow
def test_a_resume_reads_what_was_found_and_does_not_look_again(cli, images, monkeypatch):
    assert cli("train", *FOLDER, folder="run").status == 0
    before = yaml.safe_load(Path("run/config.yaml").read_text())["found"]

    def never(*args):
        raise AssertionError("measured again")

    monkeypatch.setattr("vitlab.data.image_datamodule.measure_colours", never)
    run = cli("train", "resume=run", "trainer.max_steps=5")
    assert run.status == 0, run.err
    assert yaml.safe_load(Path("run/config.yaml").read_text())["found"] == before


def test_a_value_that_a_resume_replaces_is_no_longer_found():
    saved = OmegaConf.create({"trainer": {"precision": "32-true"}, "data": {"num_classes": 3}})
    saved.found = {"precision": "32-true", "num_classes": 3}
    composed = OmegaConf.create({"trainer": {"precision": "bf16-mixed"}, "data": {"num_classes": 3}})
    assert build_resumed_config(saved, {}, composed, ["trainer.precision=bf16-mixed"]).found == {"num_classes": 3}
    assert build_resumed_config(saved, {}, saved, ["trainer.precision=32-true"]).found == saved.found


def test_a_fresh_and_a_resumed_run_store_the_same_config(cli, images):
    """References in it stay references, and what was found stands in its place."""
    options = ["data=folder", "data.source.root=images", "data.source.index_root=index", "trainer.max_steps=2"]
    assert cli("train", *options, "trainer.max_epochs=-1", folder="run").status == 0
    latest, written = Path("run/checkpoints/latest.ckpt"), Path("run/config.yaml")
    fresh, text = file.read(latest)["run"], written.read_text()
    assert fresh["config"]["data"]["mean"] == fresh["config"]["found"]["mean"]
    assert fresh["config"]["crop"]["eval"]["image_size"] == "${data.image_size}"
    assert cli("train", "resume=run", "trainer.max_steps=3", tiny=False).status == 0
    resumed = file.read(latest)["run"]
    assert resumed["config"]["trainer"].pop("max_steps") == fresh["config"]["trainer"].pop("max_steps") + 1
    assert resumed["digests"].pop("config") != fresh["digests"].pop("config")
    assert resumed == fresh
    assert written.read_text() == text.replace("max_steps: 2", "max_steps: 3")


def test_one_of_mean_and_std_is_refused(cli, images):
    run = cli("train", *FOLDER[:-1], "data.std=[0.5]")
    assert run.status == 2
    assert "data.mean and data.std must both be given" in run.err


def test_measure_colours_are_those_of_the_pixels():
    random = np.random.RandomState(0)
    from vitlab.data import WholeImage
    from vitlab.data.loading.dataset import ImageSplit
    from vitlab.data.pools.pool import ArrayPool
    from vitlab.data.targets import NoTargets

    pixels = random.randint(0, 256, (70, 8, 8, 3), dtype=np.uint8)
    crop = WholeImage(image_size=8, interpolation="bilinear")
    split = ImageSplit(
        ArrayPool(pixels, NoTargets.times(70), "noise"),
        np.arange(70),
        image_mode=None,
        in_chans=3,
        crop=crop,
        transform=None,
        seed=0,
    )
    expected = [(pixels / 255).mean(axis=(0, 1, 2)), (pixels / 255).std(axis=(0, 1, 2))]
    for workers in (0, 1):
        np.testing.assert_allclose(measure_colours(split, workers, "error"), expected, atol=1e-4)
    one = split[0, 0].image
    np.testing.assert_allclose(mean_and_std(compute_moments(one))[0], one.double().mean(dim=(1, 2)) / 255)


ODD = ["abc", "a b", "0123", "7", "1e3", "null", "true", 'say "hi"', "it's", "'q'", '"q"', "a,b=c[d]", "${oc.env:HOME}"]
ODD += ["\\", "a\\", "\\${x}", "${", "two\nlines", "$HOME", "\ttab", " lead", "a: b{c}", "\\'", " !\"#$%&'(),=\\{}é"]
ODD += ["~/x"]


def test_a_tilde_is_the_home_in_names_of_files_alone(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")  # which no shell puts in behind a =
    assert quote_value("output=~/x.csv", several=False) == "output=/home/me/x.csv"
    assert quote_value("+data.source.root=~/x", several=False) == "+data.source.root=/home/me/x"
    assert "home" not in quote_value("texts=~/x", several=False)


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("key", ["texts", "run", "data.source.characters", "data.source.input.column"])
def test_what_is_printed_can_be_typed(key, text):
    """Through the shell, the quotes that are set for the user, Hydra's grammar, and OmegaConf's references."""
    (word,) = shlex.split(format_override(key, text))
    parser = OverridesParser.create()
    read = parser.parse_override(quote_value(word, several=False)).value()
    assert OmegaConf.create({"value": read}).value == text
    (word,) = shlex.split(format_override("labels", [text, "b"]))
    read = parser.parse_override(quote_value(word, several=False)).value()
    assert list(OmegaConf.create({"value": read}).value) == [text, "b"]


def test_what_is_printed_has_no_quotes_that_it_does_not_need():
    assert (
        format_override("run", "runs/vit_xs8_digits/2026-11-21_10-10-31")
        == "run=runs/vit_xs8_digits/2026-11-21_10-10-31"
    )
    assert format_override("texts", "two hundred forty-one") == "'texts=two hundred forty-one'"
    assert format_override("data.mean", [0.1, 1]) == "'data.mean=[0.1,1]'"
    assert [format_override("x", value) for value in (None, True, 1, 0.5)] == ["x=null", "x=true", "x=1", "x=0.5"]


@pytest.mark.parametrize("text", ["${|}", "${oc.env:HOME}", "\\${x}", "${"])
def test_what_is_found_is_never_a_reference(text):
    """As the characters of one's own texts, or words of them."""
    column = {"_target_": "vitlab.data.TextColumn", "column": 1, "pieces": "characters", "vocabulary": None}
    column |= {"tokenizer": None, "special_tokens": ["a", "b", "c"]}
    cfg = OmegaConf.create({"data": {"source": {"input": column}}})
    for origin in (cfg, OmegaConf.create(make_portable(cfg))):
        found = fill_in(origin, {"input_vocabulary": text})
        assert (found.data.source.input.vocabulary, found.found.input_vocabulary) == (text, text)
        assert build(found.data.source.input, "data.source.input").given == text
        again = parse_saved_config(make_portable(found), "here")
        assert again.data.source.input.vocabulary == again.found.input_vocabulary == text
