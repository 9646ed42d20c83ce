"""Runs that write texts of images: trained, evaluated, looked at, and refused where they do not fit."""

import csv
import json

import numpy as np
import pytest
from conftest import BARE, evaluated, finished, refuses
from PIL import Image
from reading import READER

from vitlab.data import DigitLines


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A finished run of a few steps."""
    return finished(
        tmp_path_factory.mktemp("reader") / "run",
        *READER,
        *BARE[1:],
        "trainer.max_steps=12",
        "trainer.max_epochs=9",
        "optimizer.lr=3e-3",
        tiny=False,
    )


@pytest.fixture
def lines(tmp_path):
    """Three lines of the test, as files."""
    source = DigitLines(num_lines=1, num_evaluated=3, min_length=1, max_length=3, height=16)
    pool = source.open()["test"]
    for i in range(3):
        Image.fromarray(np.asarray(pool.load(i)).repeat(2, 0).repeat(2, 1)).save(tmp_path / f"line_{i}.png")
    return tmp_path


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_scores_texts_and_keeps_its_vocabulary(reader):
    from vitlab.checkpoints import file

    result = json.loads((reader / "result.json").read_text())
    assert {"test/loss", "test/exact", "test/cer"} <= result["test"].keys()
    said = rows(reader / "test_predictions.csv")
    assert len(said) == 50
    exact = sum(row["true"] == row["written"] for row in said) / 50
    assert result["test"]["test/exact"] == pytest.approx(exact)
    run = file.read(reader / "checkpoints" / "best.ckpt")["run"]
    assert run["vocabulary"] == {"kind": "characters", "characters": "0123456789"}
    assert run["config"]["found"] == {"vocab_size": 13}


def test_evaluation_is_the_runs_own_and_lengths_may_be_others(cli, reader):
    test = json.loads((reader / "result.json").read_text())["test"]
    again = cli("evaluate", f"run={reader}")
    assert again.status == 0, again.err
    found = evaluated(reader)
    assert {name: found[name] for name in test} == pytest.approx(test)
    longer = ["+data.source.min_length=5", "+data.source.max_length=6", "output=longer", "beam_width=2"]
    run = cli("evaluate", f"run={reader}", *longer)
    assert run.status == 0, run.err
    assert {len(row["true"]) for row in rows("longer/test_predictions.csv")} == {5, 6}
    most = cli("evaluate", f"run={reader}", "+data.source.max_length=20", "output=longest")
    assert most.status == 3
    assert "tokens with its end token, but data.max_length is 13" in most.err


def test_predictions_are_texts_with_the_probability_of_each_character(cli, reader, lines):
    run = cli("predict", f"run={reader}", f"images={lines}", "output=said.csv")
    assert run.status == 0, run.err
    said = rows("said.csv")
    assert [row["image"].rsplit("/")[-1] for row in said] == [f"line_{i}.png" for i in range(3)]
    for row in said:
        parts = json.loads(row["tokens"])
        assert "".join(part for part, _ in parts) == row["text"]
        assert np.prod([p for _, p in parts]) == pytest.approx(float(row["probability"]), abs=1e-4)
    wide = cli("predict", f"run={reader}", f"images={lines}", "output=wide.csv", "beam_width=3", "length_penalty=0")
    assert wide.status == 0, wide.err
    for one, best in zip(said, rows("wide.csv"), strict=True):
        assert float(best["probability"]) >= float(one["probability"]) - 1e-6


def test_where_it_looks_is_drawn(cli, reader, lines):
    run = cli("visualize", f"run={reader}", f"images={lines}", "output=seen", "num_images=2")
    assert run.status == 0, run.err
    assert sorted(path.name for path in (lines / "seen").iterdir()) == ["reading_1.png", "reading_2.png"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task=captioning"], "the task writes texts, but this data has images with one class each; set task=class"),
        (
            ["task=captioning", "data=digit_lines"],
            "the task writes texts, but the model does not; choose model=reader_xs8",
        ),
        (["data=digit_lines"], "images with a text each; set task=captioning"),
    ],
)
def test_texts_and_classes_are_not_taken_for_each_other(cli, words, sentence):
    run = cli("train", *words, "trainer=cpu", "logger=none", tiny=False, folder="run")
    assert run.status == 2
    assert refuses(run, sentence), run.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "words", "sentence"),
    [
        ("predict", ["images=.", "beam_width=0"], "beam_width"),
        ("predict", ["images=nothing.png"], "names no image file"),
        ("visualize", [], "images has no value; set images="),
        (
            "features",
            ["output=features.npz"],
            "features are stored with classes, but this data has images with a text each",
        ),
        ("visualize", ["views=[seeing]"], "seeing is not among: attention"),
        ("evaluate", ["+data.source._target_=vitlab.data.DigitSums"], "vocabulary of the data differs from the run's"),
        ("train", ["task.decoding.width=0"], "width 0 is not a whole number of at least 1"),
        ("train", ["task.label_smoothing=1"], "label_smoothing"),
        ("train", ["data.vocab_size=99"], "the model's vocab_size is 99, but the vocabulary has 13 tokens"),
        (
            "train",
            ["data.max_length=3"],
            "has 4 tokens with its end token, but data.max_length is 3; shorten it, or set data.max_length=4",
        ),
        ("train", ["data.source.min_length=0"], "min_length 0"),
        ("train", ["mixing=mixup"], "cannot be mixed"),
        ("train", ["monitor=val/acc1"], "use one of: val/loss, val/exact, val/cer"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, reader, entry, words, sentence):
    given = READER if entry == "train" else [f"run={reader}"]
    run = cli(entry, *given, *words, tiny=False, **({"folder": "run"} if entry == "train" else {}))
    assert refuses(run, sentence), run.err


@pytest.mark.slow
def test_texts_about_images_of_named_classes_are_no_classes(cli, tmp_path):
    words = ["task=captioning", "model=reader_xs8", "data=digit_scenes", "trainer.max_epochs=1", "trainer.max_steps=2"]
    run = cli("train", *words, "logger=none", f"hydra.run.dir={tmp_path}/run", tiny=False)
    assert run.status == 0, run.err
    assert (tmp_path / "run" / "test_predictions.csv").is_file()
    assert not (tmp_path / "run" / "test_per_class.csv").exists()
