"""One's own images with a text each: trained on, evaluated, predicted, resumed, and refused before any work."""

import csv
import json
import shutil

import numpy as np
import pytest
from alphabets import letters
from conftest import BARE, evaluated, finished, refuses
from omegaconf import OmegaConf
from PIL import Image
from reading import SIZES

from vitlab.checkpoints import file

OWN = ["model=reader_xs8", *SIZES, "task=captioning", "data=listing", "data.source.file=lines.csv"]
OWN += ["data.source.text_column=text", "crop=line", "data.loading.num_workers=0", "logger=none"]
OWN += ["trainer=cpu", "trainer.precision=32-true", "trainer.max_steps=3", "global_batch_size=8"]
OWN += ["schedule=constant", "schedule.warmup_ratio=0"]  # the same, however long a run is


def draw(folder, name="lines.csv", letters="abcde", count=40):
    """A table of lines of bars, whose letters are heights, each as wide as it is long."""
    random = np.random.RandomState(0)
    rows = []
    for i in range(count):
        text = "".join(letters[k] for k in random.randint(len(letters), size=1 + i % 4))
        pixels = np.zeros((16, 8 * len(text)), np.uint8)
        for place, letter in enumerate(text):
            pixels[-3 * (1 + letters.index(letter)) :, 8 * place : 8 * place + 6] = 255
        Image.fromarray(pixels).save(folder / f"{i}.png")
        rows.append((f"{i}.png", text))
    write(folder, rows, name)


def write(folder, rows, name="lines.csv", head=("path", "text")):
    with open(folder / name, "w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([head, *rows])


def rows(path):
    with open(path, newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table))


def folder_of(tmp_path_factory, *words):
    folder = tmp_path_factory.mktemp("own")
    draw(folder)
    letters().save(str(folder / "letters.json"))
    finished(folder / "run", *OWN, *BARE[1:], *words, tiny=False)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with lines, their table, a tokenizer, and a finished run on them."""
    return folder_of(tmp_path_factory)


def test_a_run_finds_the_characters_and_keeps_them(cli, own):
    run = file.read(own / "run" / "checkpoints" / "best.ckpt")["run"]
    assert run["vocabulary"] == {"kind": "characters", "characters": "abcde"}
    found = run["config"]["found"]
    counted = {"characters": "abcde", "vocab_size": 8, "max_length": 5, "in_chans": 1}
    assert {key: found[key] for key in counted} == counted
    assert len(found["mean"]) == 1
    said = rows(own / "run" / "test_predictions.csv")
    assert {row["true"] for row in said} <= {row["text"] for row in rows(own / "lines.csv")}


def test_it_is_evaluated_on_its_own_and_on_another_table_and_predicts(cli, own):
    test = json.loads((own / "run" / "result.json").read_text())["test"]
    assert cli("evaluate", "run=run").status == 0
    found = evaluated(own / "run")
    assert {name: found[name] for name in test} == pytest.approx(test)
    write(own, [(f"{i}.png", "ab") for i in range(15)], "other.csv")  # which has fewer characters
    again = cli("evaluate", "run=run", "+data.source.file=other.csv", "output=other")
    assert again.status == 0, again.err
    run = cli("predict", "run=run", "images=0.png", "output=said.csv")
    assert run.status == 0, run.err
    assert set(rows("said.csv")[0]["text"]) <= set("abcde")
    write(own, [(f"{i}.png", "abx") for i in range(15)], "other.csv")
    refused = cli("evaluate", "run=run", "+data.source.file=other.csv", "output=more")
    assert refuses(refused, "other.csv, line 2: the character 'x' of the text 'abx' is not among the 5"), refused.err


@pytest.mark.slow
def test_it_goes_on_as_if_never_ended(cli, own):
    longer = cli("train", "resume=run", "trainer.max_steps=6", tiny=False)
    assert longer.status == 0, longer.err
    whole = cli("train", *OWN, *BARE[1:], "trainer.max_steps=6", tiny=False, folder="whole")
    assert whole.status == 0, whole.err
    ends = [file.read(own / name / "checkpoints" / "latest.ckpt")["state_dict"] for name in ("run", "whole")]
    assert all(np.array_equal(one, ends[1][key]) for key, one in ends[0].items())


@pytest.mark.slow
def test_characters_that_look_like_a_reference_are_characters(cli, tmp_path):
    draw(tmp_path, letters="${|}")
    run = cli("train", *OWN, *BARE[1:], tiny=False, folder="run")
    assert run.status == 0, run.err
    for steps in (4, 5):
        longer = cli("train", "resume=run", f"trainer.max_steps={steps}", tiny=False)
        assert longer.status == 0, longer.err
    assert cli("evaluate", "run=run").status == 0
    saved = OmegaConf.create(file.read(run.folder / "checkpoints" / "latest.ckpt")["run"]["config"])
    assert saved.found.characters == "${|}"


@pytest.mark.slow
def test_a_tokenizer_is_kept_whole_in_the_run(cli, own, tmp_path_factory):
    folder = folder_of(tmp_path_factory, "data.source.tokenizer=letters.json", "data.loading.num_workers=1")
    shutil.copytree(folder, own / "by_pieces")
    run = own / "by_pieces" / "run"
    state = file.read(run / "checkpoints" / "best.ckpt")["run"]["vocabulary"]
    assert state["kind"] == "tokenizer"
    assert json.loads(state["content"]) == json.loads((own / "letters.json").read_text())
    (own / "by_pieces" / "letters.json").unlink()
    said = cli("predict", f"run={run}", "images=0.png", "output=said.csv")
    assert said.status == 0, said.err
    moved = cli("evaluate", f"run={run}", f"+data.source.tokenizer={own / 'letters.json'}")
    assert moved.status == 0, moved.err
    other = json.loads((own / "letters.json").read_text())
    vocab = other["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (own / "letters.json").write_text(json.dumps(other))
    words = [f"resume={run}", "data=listing", f"data.source.tokenizer={own / 'letters.json'}", "trainer.max_steps=6"]
    assert refuses(cli("train", *words, tiny=False), "the texts of the data are in another vocabulary, that of a token")
    words = [f"run={run}", f"+data.source.tokenizer={own / 'letters.json'}"]
    assert refuses(cli("evaluate", *words), "the vocabulary of the data differs from the run's")


@pytest.mark.slow
def test_any_crop_reads(cli, own):
    for crop in ("whole", "native"):
        run = cli("train", *OWN, f"crop={crop}", "data.image_size=16", *BARE, tiny=False, folder=crop)
        assert run.status == 0, run.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["data.source.text_column=words"], "data.source.text_column: lines.csv has no column words; it has path"),
        (["data.source.label_column=text"], "data.source.label_column is for classes; set one of them to null"),
        (
            ["data.max_length=3"],
            "has 5 tokens with its end token, but data.max_length is 3; shorten it, or set data.max_length=5",
        ),
        (["data.source.characters=abc"], "data.source.characters; correct the text, or"),
        (["data.source.tokenizer=lines.csv"], "data.source.tokenizer=lines.csv: this is not a tokenizer.json"),
        (
            ["data.source.tokenizer=letters.json", "data.source.special_tokens=[a,b]"],
            "special_tokens needs three tokens",
        ),
        (
            ["data.source.tokenizer=letters.json", "data.source.begin_token=true"],
            "the token that begins a text itself; set data.source.",
        ),
        (
            ["data.source.tokenizer=letters.json", "data.source.special_tokens=['<s>','</s>','</s>']"],
            "would not learn to end; name another token of the tokenizer as the third of data.source.special_tokens",
        ),
        (["data.source.characters=edcba", "model.pretrained=run"], "another vocabulary, characters 'edcba', than run"),
        (["data.source.characters=abcdef", "model.pretrained=run"], "another vocabulary, characters 'abcdef', than"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, own, words, sentence):
    run = cli("train", *OWN, *words, tiny=False, folder="refused")
    assert refuses(run, sentence), run.err
