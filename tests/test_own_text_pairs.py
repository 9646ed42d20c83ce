"""One's own pairs of texts: trained on, evaluated, predicted, resumed, and refused before any work."""

import csv
import json
import shutil

import numpy as np
import pytest
from alphabets import letters
from conftest import BARE, evaluated, finished, refuses
from reading import SIZES, write_numbers

from vitlab.checkpoints import file

PLAIN = ["model=transformer_mu", "task=sequence", "trainer=cpu", "trainer.precision=32-true", "logger=none", *BARE[1:]]
PLAIN += ["global_batch_size=16", "schedule=constant", "schedule.warmup_ratio=0", "trainer.max_steps=4"]
OWN = [*PLAIN, *SIZES, "data=text_pairs", "data.source.file=numbers.tsv", "data.source.input.pieces=words"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a table and a finished run on it."""
    folder = tmp_path_factory.mktemp("pairs")
    write_numbers(folder / "numbers.tsv", 100)
    with open(folder / "numbers.tsv", "a") as table:
        table.write("nine\t9\n")
    finished(folder / "run", *OWN, tiny=False)
    return folder


def rows(path):
    with open(path, newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table))


def weights(run, kind="latest"):
    return file.read(run / "checkpoints" / f"{kind}.ckpt")["state_dict"]


def test_what_is_found_is_kept_and_the_test_is_of_other_texts(cli, own):
    run = file.read(own / "run" / "checkpoints" / "best.ckpt")["run"]
    found = run["config"]["found"]
    words = found.pop("input_vocabulary").split()
    assert len(words) == 100
    assert {"forty-one", "ninety"} < set(words)
    counted = {"vocab_size": 13, "max_length": 3, "input_vocab_size": 103, "input_max_length": 2}
    assert found == {"header": True, "vocabulary": "0123456789", **counted}
    assert run["vocabulary"] == {"kind": "characters", "characters": "0123456789"}
    assert run["input_vocabulary"] == {"kind": "spaced words", "spaced words": words}
    said = rows(own / "run" / "test_predictions.csv")
    assert len({row["name"] for row in said}) == 20


def test_it_is_evaluated_on_its_own_and_on_another_table(cli, own):
    test = json.loads((own / "run" / "result.json").read_text())["test"]
    assert cli("evaluate", "run=run").status == 0
    found = evaluated(own / "run")
    assert {name: found[name] for name in test} == pytest.approx(test)
    write_numbers(own / "other.tsv", 40)  # fewer words
    again = cli("evaluate", "run=run", "+data.source.file=other.tsv", "output=other")
    assert again.status == 0, again.err
    (own / "other.tsv").write_text("input\ttarget\nhundred\t100\n" * 2)
    refused = cli("evaluate", "run=run", "+data.source.file=other.tsv", "output=more")
    assert refuses(refused, "other.tsv, line 2: the word 'hundred' of the text 'hundred' is not among the 100"), refused


@pytest.mark.parametrize("text", ["nine", "forty-two nine", "  seven  "])
def test_texts_are_read_as_they_are_typed(cli, own, text):
    run = cli("predict", "run=run", f"texts={text}", "output=said.csv")
    if len(text.split()) > 1:
        assert refuses(run, "has 3 tokens with its end token, but the model reads at most 2"), run.err
    else:
        assert run.status == 0, run.err
        assert [row["read"] for row in rows("said.csv")] == [text]


@pytest.mark.parametrize("text", ["007", "1e3", "1_000", "true", "[1,2]", "a=b", "it's", "${x}", "\\", "#1"])
def test_no_text_is_taken_for_something_else(cli, own, text):
    run = cli("predict", "run=run", f"texts={text}")
    assert refuses(run, f"of the text {text!r} is not among the 100 of the vocabulary"), run.err


@pytest.mark.slow
def test_a_table_gives_what_the_same_data_within_the_package_gives(cli, own):
    """The same words in the same order, the same splits: the same run, bit for bit."""
    write_numbers(own / "spaced.tsv", 100)
    (own / "spaced.tsv").write_text((own / "spaced.tsv").read_text().replace("-", " "))
    inside = cli("train", *PLAIN, *SIZES, "data=number_words", "data.source.num_numbers=100", tiny=False, folder="a")
    words = file.read(inside.folder / "checkpoints" / "latest.ckpt")["run"]["input_vocabulary"]["words"]
    given = ["data.source.file=spaced.tsv", f"data.source.input.vocabulary={' '.join(words)}"]
    table = cli("train", *OWN, *given, "data.source.target.vocabulary=0123456789", tiny=False, folder="b")
    assert (inside.status, table.status) == (0, 0), table.err
    assert all(np.array_equal(one, weights(table.folder)[key]) for key, one in weights(inside.folder).items())
    assert (inside.folder / "test_predictions.csv").read_text().replace("-", " ") == (
        table.folder / "test_predictions.csv"
    ).read_text()


@pytest.mark.slow
def test_it_goes_on_as_if_never_ended_and_not_with_other_texts(cli, own):
    longer = cli("train", "resume=run", "trainer.max_steps=7", tiny=False)
    assert longer.status == 0, longer.err
    whole = cli("train", *OWN, "trainer.max_steps=7", tiny=False, folder="whole")
    assert whole.status == 0, whole.err
    assert all(np.array_equal(one, weights(own / "whole")[key]) for key, one in weights(own / "run").items())
    (own / "numbers.tsv").write_text((own / "numbers.tsv").read_text().replace("\t9\n", "\t8\n"))
    refused = cli("train", "resume=run", "trainer.max_steps=8", tiny=False)
    assert refuses(refused, "the data has changed since the run started"), refused.err


@pytest.mark.slow
def test_two_tokenizers_are_kept_in_the_run(cli, own):
    letters().save("letters.json")
    (own / "pairs.csv").write_text("".join(f"{a}{b},{b}{a}\n" for a in "abcde" for b in "abcde"))
    words = ["data.source.input.column=1", "data.source.target.column=2", "data.source.input.pieces=characters"]
    words += [f"data.source.{side}.tokenizer=letters.json" for side in ("input", "target")]
    run = cli(
        "train", *OWN, "data.source.file=pairs.csv", *words, "global_batch_size=4", tiny=False, folder="by_pieces"
    )
    assert run.status == 0, run.err
    moved = own / "moved.json"
    (own / "letters.json").rename(moved)
    assert cli("predict", "run=by_pieces", "texts=ab", "output=said.csv").status == 0
    given = [f"+data.source.{side}.tokenizer=moved.json" for side in ("input", "target")]
    again = cli("evaluate", "run=by_pieces", *given)
    assert again.status == 0, again.err
    other = json.loads(moved.read_text())
    vocabulary = other["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    shutil.copy(moved, own / "letters.json")
    moved.write_text(json.dumps(other))
    refused = cli("evaluate", "run=by_pieces", given[0])  # what is read means other tokens
    assert refuses(refused, "the vocabulary of the data differs from the run's"), refused.err


def test_repeated_rows_are_told_at_the_start(own):
    told = (own / "run" / "train.log").read_text()
    assert "\nrepeated 1 row(s), which count again: numbers.tsv, line 102 = numbers.tsv, line 11\n" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["data=listing", "data.source.text_column=target"],
            "the model reads texts, but the data has images; choose",
        ),
        (
            ["model=reader_xs8"],
            "the data has only texts, but the model reads images; choose model=transformer_mu",
        ),
        (["task=classification"], "the data has only texts, but the task needs images; set task=sequence"),
        (["data.source.input.column=words"], "data.source.input.column: numbers.tsv has no column words; it has input"),
        (["data.source.input.pieces=syllables"], "pieces syllables is not characters or words"),
        (["data.source.file=absent.tsv"], "data.source.file: there is no file absent.tsv; give a CSV, TSV or Parquet"),
        (["data.source.target.vocabulary=012345678"], "line 11: the character '9' of the text '9' is not among the 9"),
        (["data.max_length=2"], "the text '10' has 3 tokens with its end token, but data.max_length is 2; shorten it"),
        (["data.source.input.tokenizer=x.json", "data.source.input.vocabulary=a"], "data.source.input: vocabulary and"),
        (["data.split.val_fraction=0"], "the val split holds no text; set data.split.val_fraction=0.05"),
        (["data.split.labels_per_class=3"], "data.split.labels_per_class needs images with one class each"),
        (
            ["model.pretrained=run", "data.source.input.pieces=characters"],
            "the texts of the data are in another vocabulary",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, own, words, sentence):
    model = [] if any(word.startswith(("data=listing", "model=reader")) for word in words) else SIZES
    words = [*(word for word in OWN if word not in SIZES), *model, *words]
    if "data=listing" in words:
        words.remove("data.source.input.pieces=words")
    run = cli("train", *words, tiny=False, folder="refused")
    assert refuses(run, sentence), run.err
