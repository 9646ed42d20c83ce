"""Runs that answer questions about images: trained, evaluated, asked, looked at, refused where they do not fit."""

import csv
import json

import numpy as np
import pytest
from conftest import BARE, evaluated, finished, refuses
from PIL import Image
from reading import ASKED, READER

import vitlab
from vitlab.data import DigitQuestions
from vitlab.errors import ConfigError

GROUPS = {"seen", "held_out", "how_many", "largest", "smallest", "sum", "beside"}


@pytest.fixture(scope="module", params=ASKED)
def asked(request, tmp_path_factory):
    """A finished run of a few steps, and what kind of model it is of."""
    steps = ["trainer.max_steps=12", "trainer.max_epochs=9", "optimizer.lr=3e-3"]
    folder = tmp_path_factory.mktemp(request.param) / "run"
    return request.param, finished(folder, *ASKED[request.param], *BARE[1:], *steps, tiny=False)


@pytest.fixture
def scenes(tmp_path):
    """Three scenes of the test, as files."""
    pool = DigitQuestions(num_scenes=1, num_evaluated=3).open()["test"]
    for i in range(3):
        Image.fromarray(np.asarray(pool.load(i))).save(tmp_path / f"scene_{i}.png")
    return tmp_path


@pytest.mark.slow
def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_groups_are_scored_by_themselves_and_evaluation_says_the_same(cli, asked, tmp_path):
    _, run = asked
    test = json.loads((run / "result.json").read_text())["test"]
    assert test.keys() == {"test/loss", "test/exact", "test/cer", *(f"test/exact_{name}" for name in GROUPS)}
    said = rows(run / "test_predictions.csv")
    assert len(said) == 51
    right = np.array([row["true"] == row["written"] for row in said])
    assert test["test/exact"] == pytest.approx(right.mean())
    groups = DigitQuestions(num_scenes=320, num_evaluated=51).open()["test"].targets.groups
    for name, own in groups.items():
        assert test[f"test/exact_{name}"] == pytest.approx(right[own].mean())
    assert said[0]["name"] == "scene 0"
    assert said[0]["question"].endswith("?")
    for batch in (7, 51):  # of any size
        words = [f"+data.device_batch_size={batch}", f"output=by_{batch}"]
        again = cli("evaluate", f"run={run}", *words)
        assert again.status == 0, again.err
        found = evaluated(tmp_path / f"by_{batch}")
        assert {name: found[name] for name in test} == pytest.approx(test, abs=1e-5)


def no_number(word):
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("asked", ["single_stream"], indirect=True)
def test_of_a_group_without_samples_nothing_is_known(cli, asked, tmp_path):
    run = cli("evaluate", f"run={asked[1]}", "+data.source.num_evaluated=1", "output=one")
    assert run.status == 0, run.err
    found = evaluated(tmp_path / "one", parse_constant=no_number)
    assert found["test/exact"] is not None
    assert [found[f"test/exact_{name}"] for name in sorted(GROUPS)].count(None) >= 4
    assert "nan" not in run.out


def test_any_question_is_answered_about_any_image(cli, asked, scenes):
    _, run = asked
    output = ["output=said.csv", "overwrite=true"]
    tested = {row["question"]: row["written"] for row in rows(run / "test_predictions.csv")[2::-1]}
    for question, expected in tested.items():  # those of the three scenes
        told = cli("predict", f"run={run}", f"images={scenes}", f"question='{question}'", *output)
        assert told.status == 0, told.err
        said = rows("said.csv")
        assert len(said) == 3
        assert expected in {row["text"] for row in said}
        for row in said:
            assert "".join(part for part, _ in json.loads(row["tokens"])) == row["text"]


def test_where_it_looks_while_it_is_asked_is_drawn(cli, asked, scenes):
    kind, run = asked
    seen = cli("visualize", f"run={run}", f"images={scenes}", "question='sum?'", "num_images=1", "output=seen")
    assert seen.status == 0, seen.err
    names = {"reading_1.png"} | ({"modalities_1.png"} if kind == "single_stream" else set())
    assert {path.name for path in (scenes / "seen").iterdir()} == names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "words", "sentence"),
    [
        ("predict", ["images=."], "answers questions; set a question, such as question='how many?'"),
        ("visualize", ["images=."], "answers questions; set a question"),
        ("visualize", ["images=.", "question=sum?", "views=modalities"], "similarities; reading draws modalities, too"),
        (
            "visualize",
            ["images=.", "question=sum?", "views=attention"],
            "is a SingleStream, which reads texts too; views=reading with question= draws where it looks",
        ),
        ("visualize", ["images=.", "question=sum?", "texts=sum?"], "texts= needs a run that reads texts, or views="),
        (
            "predict",
            ["images=.", "question='how many are there?'"],
            "has 20 tokens with its end token, but the model",
        ),
        ("predict", ["images=.", "question=' '"], "question is empty; give a question"),
        ("predict", ["images=.", "question=Sum?"], "the character 'S' of the text 'Sum?' is not among the"),
        (
            "train",
            ["model.question_length=9"],
            "but model.question_length is 9; shorten it, or set model.question_length=16",
        ),
        ("train", ["task=captioning"], "wants a question beside each image; set task=answering"),
        ("train", ["data=digit_lines"], "the task answers questions, but this data has images with a text each"),
        (
            "train",
            ["data.max_length=2"],
            "tokens with its end token, but data.max_length is 2; shorten it, or set data.max_length=3",
        ),
        ("train", ["model.max_length=2"], "task.decoding.max_length is 3, but the model writes 2 tokens at most"),
        (
            "train",
            ["task=classification", "data=digits"],
            "the model takes texts, but this data has images with one class each; choose a model of images only",
        ),
        ("train", ["task=captioning", "data=digit_lines"], "the model needs questions, but this data has images"),
        ("train", ["model=vit_mu4"], "the task writes texts, but the model does not; choose model=reader_xs8, or"),
        ("train", ["data.source.num_evaluated=0"], "num_evaluated 0 is not a whole number of at least 1"),
    ],
)
@pytest.mark.parametrize("asked", ["single_stream"], indirect=True)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, asked, scenes, entry, words, sentence):
    kind, folder = asked
    given = [f"run={folder}"]
    if entry == "train":
        others = tuple(word.partition("=")[0] for word in words if word.startswith(("data=", "model=")))
        given = [word for word in ASKED[kind] if not word.startswith(others)]
    run = cli(entry, *given, *words, tiny=False, **({"folder": "run"} if entry == "train" else {}))
    assert refuses(run, sentence), run.err


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["single_stream"], indirect=True)
def test_attention_is_said_to_be_drawn_elsewhere(asked, scenes):
    with pytest.raises(ConfigError, match="use the command visualize with views=reading"):
        vitlab.load(asked[1], device="cpu").attention(scenes / "scene_0.png")


@pytest.mark.slow
@pytest.mark.ci
def test_a_reader_is_asked_nothing(cli):
    run = cli("train", *READER, "task=answering", tiny=False, folder="run")
    assert refuses(run, "is asked no questions; choose model=single_stream_xs8 or asked_reader_xs8"), run.err
    run = cli("train", "data=digit_questions", "trainer=cpu", "logger=none", tiny=False, folder="run")
    assert refuses(run, "images with a question and its answer each; set task=answering"), run.err
    words = [word for word in READER if not word.startswith("data")]
    run = cli("train", *words, "data=digit_questions", tiny=False, folder="run")
    assert refuses(run, "the task reads no questions, but this data has images with a question"), run.err


@pytest.mark.slow
def test_a_run_of_classes_is_asked_nothing(cli, digits_run, scenes):
    for entry in ("predict", "visualize"):
        run = cli(entry, f"run={digits_run}", f"images={scenes}", "question='sum?'")
        assert refuses(run, "does not answer questions; leave out question="), run.err


@pytest.mark.slow
@pytest.mark.ci
def test_weights_are_taken_by_models_that_compute_the_same(cli, asked):
    kind, folder = asked
    given = [*ASKED[kind], f"model.pretrained={folder}", *BARE[1:], "trainer.max_steps=1", "trainer.max_epochs=1"]
    run = cli("train", *given, tiny=False, folder="run")
    assert run.status == 0, run.err
    place = "model.max_length=4" if kind == "single_stream" else "model.decoder.max_length=24"
    for word, sentence in (
        ("model.encoder.num_heads=4", "computes with encoder.num_heads 2, but the model with 4"),
        ("model.question_length=18", "computes with question_length 16, but the model with 18"),
    ):
        run = cli("train", *given, word, place, tiny=False, folder="other")
        assert refuses(run, sentence), run.err
    run = cli("train", "model=vit_mu4", "data=digits", f"model.pretrained={folder}", tiny=False, folder="other")
    other = "is a model of one Transformer for images and texts" if kind == "single_stream" else "is of another model"
    assert refuses(run, other), run.err
