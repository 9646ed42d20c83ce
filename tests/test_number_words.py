"""Texts of texts: numbers in words are read, and written in digits, without any image."""

import csv
import json
import re

import numpy as np
import pytest
from conftest import BARE, evaluated, finished, refuses
from reading import WRITER

import vitlab
from vitlab.data import NumberWords
from vitlab.data.generated.number_words import spell_number
from vitlab.errors import ConfigError, DataError
from vitlab.vocabulary import WordVocabulary, restore_vocabulary


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A finished run of a few steps."""
    return finished(
        tmp_path_factory.mktemp("writer") / "run",
        *WRITER,
        *BARE[1:],
        "trainer.max_steps=12",
        "trainer.log_every_n_steps=5",
        "optimizer.lr=3e-3",
        tiny=False,
    )


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (241, "two hundred forty-one"),
        (700, "seven hundred"),
        (1000, "one thousand"),
        (90_017, "ninety thousand seventeen"),
        (123_456, "one hundred twenty-three thousand four hundred fifty-six"),
    ],
)
def test_numbers_are_said_as_one_says_them(number, words):
    assert spell_number(number) == words


def test_every_number_has_words_of_its_own_and_is_read_by_them():
    pool = NumberWords(num_numbers=3000).open()["train"]
    assert len(set(pool.read.values)) == 3000
    assert pool.targets.tolist() == [str(number) for number in range(3000)]
    batch = pool.read[[241, 7]].collate()
    assert batch.lengths.tolist() == [5, 2]
    assert pool.read.vocabulary.decode(batch.codes[0].tolist()) == "two hundred forty one"


def test_a_vocabulary_of_words_comes_back_and_knows_no_others():
    vocabulary = WordVocabulary(["one", "twenty"])
    assert vocabulary.encode("twenty-one") == [4, 3, 2]
    assert restore_vocabulary(vocabulary.state()) == vocabulary != WordVocabulary(["one"])
    with pytest.raises(DataError, match="the word 'two' of the text 'twenty-two' is not among the 2 of the vocabulary"):
        vocabulary.encode("twenty-two")
    for words in ([], ["a", "a"], ["a b"], [""]):
        with pytest.raises(ConfigError, match="a vocabulary has words, each once"):
            WordVocabulary(words)


def test_a_run_splits_by_number_and_evaluation_is_the_runs_own(cli, writer):
    said = rows(writer / "test_predictions.csv")
    assert len(said) == 200 == len({row["name"] for row in said})
    assert all(spell_number(int(row["true"])) == row["name"] for row in said)
    test = json.loads((writer / "result.json").read_text())["test"]
    again = cli("evaluate", f"run={writer}")
    assert again.status == 0, again.err
    found = evaluated(writer)
    assert {name: found[name] for name in test} == pytest.approx(test)


def test_its_speed_is_of_texts(writer):
    told = (writer / "train.log").read_text()
    assert re.search(r"epoch 1 .* texts/s \d+ ", told)
    assert re.search(r"^speed +[\d,]+ texts/s in training$", told, re.MULTILINE)
    assert "images/s" not in told


@pytest.mark.parametrize(
    "words", [["model=reader_xs8", "data=digit_lines"], ["model=transformer_mu", "data=number_words"]]
)
def test_a_summary_says_where_its_counts_are_to_be_had(cli, words):
    run = cli("summary", *words)
    assert refuses(run, "writes texts; "), run.err


def test_texts_are_read_alone_and_from_a_file(cli, writer, tmp_path):
    (tmp_path / "numbers.txt").write_text("forty-two\nnine hundred\n")
    for texts, count in (("two hundred forty-one", 1), ("numbers.txt", 2)):
        run = cli("predict", f"run={writer}", f"texts={texts}", "output=said.csv", "overwrite=true")
        assert run.status == 0, run.err
        assert len(rows("said.csv")) == count
    assert rows("said.csv")[1]["read"] == "nine hundred"
    assert cli("predict", f"run={writer}", "texts=forty-two").status == 0
    assert len(list(writer.glob("predict/*/predictions.csv"))) == 1


def test_where_words_look_is_drawn_into_the_run_or_elsewhere(cli, writer, tmp_path):
    run = cli("visualize", f"run={writer}", "texts=two hundred forty-one", "output=seen")
    assert run.status == 0, run.err
    assert [path.name for path in (tmp_path / "seen").iterdir()] == ["reading_1.png"]
    assert cli("visualize", f"run={writer}", "texts=forty-two").status == 0
    assert len(list(writer.glob("visualize/*/reading_1.png"))) == 1


@pytest.mark.slow
def test_a_check_measures_texts_and_a_batch_is_found(cli):
    run = cli("check", *WRITER, "global_batch_size=auto", "seconds=0.05")
    assert run.status == 0, run.err
    found = next(line for line in run.out.splitlines() if line.startswith("found"))
    assert {"global_batch_size=", "data.vocab_size=13", "data.max_length=4", "data.input_max_length=5"} <= {
        re.sub(r"(?<=batch_size=).*", "", word) for word in found.split()
    }
    assert "texts/s" in run.out
    assert run.out.strip().endswith("yes")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("preview", WRITER),
        ("survey", ["data=number_words"]),
        ("pack", ["data=number_words", "output=packed"]),
        ("features", ["run=RUN", "output=features.npz"]),
        ("probe", ["run=RUN"]),
        ("export", ["run=RUN", "format=timm", "output=exported"]),
    ],
)
def test_commands_of_images_refuse_data_of_texts(cli, writer, entry, words):
    run = cli(entry, *[word.replace("RUN", str(writer)) for word in words], tiny=False)
    assert refuses(run, "this command needs images, but the data has only texts"), run.err


def test_python_refuses_images_for_a_run_of_texts(writer):
    run = vitlab.load(writer, device="cpu")
    image = np.zeros((8, 8), np.uint8)
    with pytest.raises(ConfigError, match="writes texts and does not predict classes; use the command predict"):
        run.predict(image)
    with pytest.raises(ConfigError, match="reads texts, not images"):
        run.features(image)


@pytest.mark.parametrize(
    ("entry", "words", "sentence"),
    [
        ("predict", ["texts='two foo'"], "the word 'foo' of the text 'two foo' is not among the 30 of the vocabulary"),
        ("predict", ["texts=' '"], "one of them is empty"),
        ("predict", ["texts='one one one one one one one one'"], "has 9 tokens with its end token, but the model"),
        ("predict", [f"texts='{'eleven ' * 60}'"], "has 61 tokens with its end token, but the model reads"),
        ("predict", ["images=x.png"], "reads texts; give texts=... instead of images="),
        ("predict", [], "texts has no value"),
        ("predict", ["texts=two", "labels=[two,one]"], "does not compare images with texts, so it takes no labels="),
        ("visualize", [], "texts has no value"),
        ("train", ["model=reader_xs8"], "the data has only texts, but the model reads images; choose model="),
        ("train", ["data.source.num_numbers=0"], "num_numbers 0 is not a whole number from 1 to 1000000"),
        ("train", ["data.max_length=2"], "has 4 tokens with its end token, but data.max_length is 2"),
        ("train", ["data.input_max_length=2"], "but data.input_max_length is 2"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, writer, entry, words, sentence):
    given = WRITER if entry == "train" else [f"run={writer}"]
    run = cli(entry, *given, *words, tiny=False, **({"folder": "run"} if entry == "train" else {}))
    assert refuses(run, sentence), run.err


def test_a_file_of_texts_may_begin_with_a_mark_and_is_in_utf_8(cli, writer, tmp_path):
    (tmp_path / "texts.txt").write_text("two\none\n", encoding="utf-8-sig")
    run = cli("predict", f"run={writer}", "texts=texts.txt", "output=said.csv")
    assert run.status == 0, run.err
    (tmp_path / "texts.txt").write_text("zw\xf6lf\n", encoding="latin-1")
    run = cli("predict", f"run={writer}", "texts=texts.txt")
    assert refuses(run, "texts: texts.txt is not UTF-8 text; save it in UTF-8"), run.err
