"""One's own images with questions about them: learned, scored, asked, refused before any work."""

import csv
import json

import pytest
from coloured import ask
from conftest import BARE, evaluated, finished, refuses
from reading import SIZES

from vitlab.checkpoints import file

OWN = ["task=answering", "model=single_stream_xs8", *SIZES[:3], "crop=whole", "data=listing"]
OWN += ["data.source.file=questions.csv", "data.source.text_column=answer", "data.source.question_column=question"]
OWN += ["data.loading.num_workers=0", "logger=none", "trainer=cpu", "trainer.precision=32-true", "trainer.max_steps=60"]
OWN += ["trainer.max_epochs=-1", "global_batch_size=16", "optimizer.lr=3e-3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with pictures, questions about them, and a finished run."""
    folder = tmp_path_factory.mktemp("own_questions")
    ask(folder)
    finished(folder / "run", *OWN, *BARE[1:], tiny=False)
    return folder


@pytest.mark.slow
def test_a_run_answers_what_it_is_asked(cli, own):
    test = json.loads((own / "run" / "result.json").read_text())["test"]
    assert test.keys() == {"test/loss", "test/exact", "test/cer"}
    assert test["test/exact"] > 0.6  # of red, green, blue, yes and no the most frequent is a third
    found = file.read(own / "run" / "checkpoints" / "best.ckpt")["run"]["config"]["found"]
    assert (found["input_max_length"], found["max_length"]) == (len("Which colour?") + 1, len("green") + 1)
    assert set(found["characters"]) == set("Which colour?Is it red?greenblueyesno")
    with open(own / "run" / "test_predictions.csv", newline="", encoding="utf-8") as table:
        asked = [(row["name"], row["question"]) for row in csv.DictReader(table)]
    assert len(asked) == len(set(asked)) == 24
    assert len({name for name, _ in asked}) == 12  # of 60 images, and both questions about each
    again = cli("evaluate", "run=run")
    assert again.status == 0, again.err
    scored = evaluated(own / "run")
    assert {name: scored[name] for name in test} == pytest.approx(test)
    told = cli("predict", "run=run", "images=0.png", "question='Is it red?'", "output=said.csv")
    assert told.status == 0, told.err
    with open("said.csv", newline="", encoding="utf-8") as table:
        assert set(next(csv.DictReader(table))["text"]) <= set(found["characters"])


def test_a_reader_finds_room_for_its_questions(cli, own):
    words = [*OWN, *BARE[1:], "model=asked_reader_xs8", *SIZES, "trainer.max_steps=2"]
    run = cli("train", *words, tiny=False, folder="reader")
    assert run.status == 0, run.err
    config = file.read(run.folder / "checkpoints" / "best.ckpt")["run"]["config"]
    assert config["found"]["input_max_length"] + config["found"]["max_length"] == 20
    tuned = cli("train", *words, "model.pretrained=reader", tiny=False, folder="tuned")
    assert tuned.status == 0, tuned.err
    (own / "reader" / "result.json").unlink()
    again = cli("evaluate", "run=reader")
    assert again.status == 0, again.err


def test_training_begins_with_the_weights_of_such_a_run(cli, own):
    words = [*OWN, *BARE[1:], "trainer.max_steps=1", "model.pretrained=run"]
    run = cli("train", *words, tiny=False, folder="tuned")
    assert run.status == 0, run.err
    run = cli("train", *words, "data.input_max_length=16", tiny=False, folder="longer")
    assert refuses(run, "computes with question_length 14, but the model with 16; set model.question_length"), run.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["data.source.text_column=null"], "data.source.question_column is for texts; set data.source.text_column"),
        (["data.source.question_column=asked"], "data.source.question_column: questions.csv has no column asked"),
        (["data.input_max_length=9"], "'Which colour?' has 14 tokens with its end token, but data.input_max_length"),
        (["data.source.question_column=null"], "remove one, or set data.source.allow_two_labels=true"),
        (["task=captioning"], "wants a question beside each image; set task=answering"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, own, words, sentence):
    run = cli("train", *OWN, *words, tiny=False, folder="refused")
    assert refuses(run, sentence), run.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            "0.png,Is it red?,no",
            "has the text no, and yes at questions.csv, line 3, to 'Is it red?'; remove one, or set data.source",
        ),
        ("0.png,,no", "the question is empty; fill it, or remove the row"),
        ("0.png,Is it red?,", "the answer is empty; fill it, or remove the row"),
    ],
)
def test_a_row_that_cannot_be_is_refused(cli, own, row, sentence):
    with open("questions.csv", "a", encoding="utf-8") as table:
        table.write(row + "\n")
    run = cli("train", *OWN, tiny=False, folder="refused")
    assert refuses(run, sentence), run.err


def test_characters_of_another_table_are_known_or_it_is_refused(cli, own):
    table = (own / "questions.csv").read_text().replace("Is it red?", "Is it RED?")
    (own / "other.csv").write_text(table)
    run = cli("evaluate", "run=run", "+data.source.file=other.csv", "output=other")
    assert refuses(run, "of the text 'Is it RED?' is not among the"), run.err
