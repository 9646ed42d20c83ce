"""One's own images with captions, several of each: learned from by contrast, scored, asked for labels, refused before
any work."""

import csv
import json

import pytest
from coloured import BERT, COLOURS, draw, save_pieces
from conftest import BARE, evaluated, finished, refuses
from reading import SIZES
from tokenizers import Tokenizer

import vitlab
from vitlab.checkpoints import file

OWN = ["task=contrastive", "model=clip_xs8", *SIZES[:3], "model.text.embed_dim=16", "model.text.depth=1"]
OWN += ["model.text.num_heads=2", "data=listing", "data.source.file=captions.csv", "data.source.text_column=caption"]
OWN += ["data.source.allow_two_labels=true", "data.loading.num_workers=0", "logger=none", "trainer=cpu"]
OWN += ["trainer.precision=32-true", "trainer.max_steps=16", "trainer.max_epochs=-1", "global_batch_size=16"]
OWN += ["optimizer.lr=3e-3"]
FIGURES = {"loss", "text_recall1", "text_recall5", "image_recall1", "image_recall5"}  # and no zero_shot


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with pictures, their captions, a tokenizer, and a finished run on the captions' characters."""
    folder = tmp_path_factory.mktemp("own_captions")
    draw(folder)
    save_pieces(folder)
    finished(folder / "run", *OWN, *BARE[1:], tiny=False)
    return folder


def test_a_run_scores_what_it_has_learned_from_captions(cli, own):
    test = json.loads((own / "run" / "result.json").read_text())["test"]
    assert test.keys() == {f"test/{name}" for name in FIGURES}
    record = file.read(own / "run" / "checkpoints" / "best.ckpt")["run"]
    assert record["vocabulary"]["characters"] == " abcdefgilnoprstu"
    assert record["config"]["found"]["max_length"] == len("all of it is green") + 1
    again = cli("evaluate", "run=run")
    assert again.status == 0, again.err
    found = evaluated(own / "run")
    assert {name: found[name] for name in test} == pytest.approx(test)
    assert "zero_shot" not in (own / "run" / "metrics.csv").read_text()


def test_a_run_tells_labels_apart_and_draws_texts(cli, own):
    said = cli("predict", "run=run", "images=0.png", "labels=[red,blue]", "output=said.csv")
    assert said.status == 0, said.err
    found = vitlab.load(own / "run", device="cpu").predict(own / "0.png", labels=["red", "blue"])[0]
    with open("said.csv", newline="", encoding="utf-8") as table:
        assert next(csv.DictReader(table))["class_1"] == found.class_name
    (own / "texts.txt").write_text("red\na green picture\n")
    seen = cli("visualize", "run=run", "images=0.png", "texts=texts.txt", "views=similarities", "output=seen")
    assert seen.status == 0, seen.err
    for entry, words, sentence in (
        ("predict", [], "learned from texts and has no class names; set labels=[cat,dog]"),
        ("predict", ["labels=[red,yellow]"], "the character 'y' of the text 'yellow' is not among the 17"),
        ("predict", ["labels=[red,all of it is all red]"], "has more than the 19 tokens that the model reads"),
        ("visualize", ["views=similarities"], "learned from texts and has no class names; set texts="),
        ("visualize", ["texts=red"], "texts= needs a run that reads texts, or views=similarities"),
        ("evaluate", ["templates=['a {}']"], "templates= need class names, but run=run has none; leave it out"),
    ):
        refused = cli(entry, "run=run", *(["images=0.png"] if entry != "evaluate" else []), *words)
        assert refuses(refused, sentence), refused.err


def test_another_table_is_scored_or_refused(cli, own):
    draw(own, count=60, ways=1, name="other.csv")
    scored = cli("evaluate", "run=run", "+data.source.file=other.csv", "output=other")
    assert scored.status == 0, scored.err
    table = (own / "other.csv").read_text().replace("all of it is blue", "all of it is blue and blue")
    (own / "other.csv").write_text(table)
    refused = cli("evaluate", "run=run", "+data.source.file=other.csv", "output=more")
    assert refuses(refused, "has 27 tokens with its end token, but data.max_length is 19; shorten it"), refused.err


@pytest.mark.slow
def test_captions_may_be_in_the_pieces_of_a_tokenizer(cli, own):
    words = ["data.source.tokenizer=tokenizer.json", f"data.source.special_tokens={BERT}"]
    run = cli("train", *OWN, *BARE[1:], *words, "trainer.max_steps=60", tiny=False, folder="by_pieces")
    assert run.status == 0, run.err
    tokenizer = Tokenizer.from_file(str(own / "tokenizer.json"))
    found = file.read(run.folder / "checkpoints" / "best.ckpt")["run"]["config"]["found"]
    assert found["vocab_size"] == tokenizer.get_vocab_size()
    (own / "tokenizer.json").unlink()
    said = vitlab.load(run.folder, device="cpu").predict([own / f"{i}.png" for i in range(3)], labels=list(COLOURS))
    assert [one.class_name for one in said] == list(COLOURS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["data.source.allow_two_labels=false"], "remove one, or set data.source.allow_two_labels=true"),
        (["data.source.tokenizer=tokenizer.json"], "tokenizer.json has no token '<s>'"),
        (
            ["data.max_length=9"],
            "has 19 tokens with its end token, but data.max_length is 9; shorten it, or set data.max_length=19",
        ),
        (["monitor=val/zero_shot"], "use one of: val/loss, val/text_recall1"),
        (["model=vit_mu4"], "the model reads no texts; choose model=clip_xs8"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, own, words, sentence):
    given = [word for word in OWN if not (words[0].startswith("model=") and word.startswith("model"))]
    run = cli("train", *given, *words, tiny=False, folder="refused")
    assert refuses(run, sentence), run.err
