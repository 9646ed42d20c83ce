"""Runs of images and texts: trained, evaluated by other prompts, asked for labels, looked at, refused where they do not
fit."""

import csv
import json

import numpy as np
import pytest
from conftest import BARE, evaluated, finished, refuses
from PIL import Image
from reading import TOWERS

import vitlab
from vitlab.data import Digits
from vitlab.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """A finished run of a few steps."""
    steps = ["trainer.max_steps=12", "trainer.max_epochs=9", "optimizer.lr=3e-3"]
    return finished(tmp_path_factory.mktemp("towers") / "run", *TOWERS, *BARE[1:], *steps, tiny=False)


@pytest.fixture
def digits(tmp_path):
    """Three digits as files."""
    for i, pixels in enumerate(Digits().open()["train"].pixels[:3]):
        Image.fromarray(np.asarray(pixels)).save(tmp_path / f"digit_{i}.png")
    return tmp_path


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


MEASURED = {"loss", "zero_shot", "text_recall1", "text_recall5", "image_recall1", "image_recall5"}


def test_evaluation_is_the_runs_own_and_prompts_may_be_others(cli, towers, digits):
    test = json.loads((towers / "result.json").read_text())["test"]
    assert test.keys() == {f"test/{name}" for name in MEASURED}
    again = cli("evaluate", f"run={towers}")
    assert again.status == 0, again.err
    found = evaluated(towers)
    assert {name: found[name] for name in test} == pytest.approx(test)
    other = cli("evaluate", f"run={towers}", "templates=['a {}','the digit {}']", "output=other")
    assert other.status == 0, other.err
    found = evaluated(digits / "other")
    assert found["test/loss"] == pytest.approx(test["test/loss"])
    lost = cli("evaluate", f"run={towers}", "templates=['a drawing of {}']", "output=lost")
    assert refuses(lost, "the word 'drawing' of the text 'a drawing of zero' is not among"), lost.err


def test_labels_are_told_apart_by_their_names(cli, towers, digits):
    run = cli("predict", f"run={towers}", f"images={digits}", "labels=[seven,two,nought]", "output=said.csv")
    assert run.status == 0, run.err
    said = rows("said.csv")
    assert [row["image"].rsplit("/")[-1] for row in said] == [f"digit_{i}.png" for i in range(3)]
    for row in said:
        assert {row[f"class_{k}"] for k in (1, 2, 3)} == {"seven", "two", "nought"}
        assert sum(float(row[f"probability_{k}"]) for k in (1, 2, 3)) == pytest.approx(1, abs=1e-5)
    classes = cli("predict", f"run={towers}", f"images={digits}", "templates=['a {}']", "top_k=10", "output=ten.csv")
    assert classes.status == 0, classes.err
    assert {row["class_10"] for row in rows("ten.csv")} <= {"zero", "one", "two", "three", "four"} | {
        *("five", "six", "seven", "eight", "nine")
    }


def test_python_tells_labels_apart_as_the_command_does(cli, towers, digits):
    own = vitlab.load(towers, device="cpu")
    for labels in (["seven", "two", "nought"], None):
        words = [] if labels is None else [f"labels=[{','.join(labels)}]"]
        done = cli("predict", f"run={towers}", f"images={digits}", f"output={len(words)}.csv", *words)
        assert done.status == 0, done.err
        found = own.predict(digits, labels=labels, batch_size=2)
        assert [str(one.image) for one in found] == [row["image"] for row in rows(f"{len(words)}.csv")]
        for one, row in zip(found, rows(f"{len(words)}.csv"), strict=True):
            assert one.top[0] == (one.class_name, one.probability)
            for rank, (name, probability) in enumerate(one.top, start=1):
                assert name == row[f"class_{rank}"]
                assert probability == pytest.approx(float(row[f"probability_{rank}"]), abs=1e-5)
    with pytest.raises(ConfigError, match="give at least two"):
        own.predict(digits, labels="seven")
    with pytest.raises(DataError, match="the word 'cat' of the text 'cat' is not among"):
        own.predict(digits, labels=["cat", "two"])
    own._saved.checkpoint["run"]["class_names"] = []
    with pytest.raises(ConfigError, match="learned from texts and has no class names; set labels="):
        own.predict(digits)


def test_similarities_are_drawn_of_classes_and_of_texts(cli, towers, digits):
    run = cli("visualize", f"run={towers}", f"images={digits}", "views=similarities", "output=seen")
    assert run.status == 0, run.err
    (digits / "texts.txt").write_text("a seven\na two left of a seven\n")
    texts = [f"images={digits}", "texts=texts.txt", "views=[similarities]", "output=told"]
    run = cli("visualize", f"run={towers}", *texts)
    assert run.status == 0, run.err
    assert (digits / "seen" / "similarities.png").is_file()
    assert (digits / "told" / "similarities.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "words", "sentence"),
    [
        ("predict", ["images=.", "labels=[seven]"], "labels=['seven']: give at least two"),
        ("predict", ["images=.", "labels=[]"], "labels=[]: give at least two"),
        ("predict", ["images=.", "labels=seven"], "labels seven is not a list"),
        ("predict", ["images=.", "labels=[two,seven,two]"], "'two' is given twice; give each once"),
        ("predict", ["images=.", "labels=[two,'']"], "labels ['two', ''] is not a list of names"),
        ("predict", ["images=.", "labels=[two,' ']"], "labels=['two', '']: one of them is empty"),
        ("predict", ["images=.", "labels=[two,null]"], "labels"),
        ("predict", ["images=.", "labels=[two,cat]"], "the word 'cat' of the text 'cat' is not among the 23"),
        ("predict", ["images=.", "labels=[two,above above above above above above above above]"], "has more than the"),
        (
            "predict",
            ["images=.", "labels=[two,3]"],
            "labels ['two', 3] is not a list of names or null; quote it: 'labels=[\"two\",\"3\"]'",
        ),
        ("predict", ["images=.", "labels=[two,'two-']"], "the model reads 'two-' as it reads 'two'; give another name"),
        ("predict", ["images=.", "labels=[two,'-']"], "the model reads nothing of '-'; give another name"),
        ("predict", ["images=.", "labels=[two,'two ']"], "'two' is given twice; give each once"),
        ("predict", ["images=.", "beam_width=2"], "writes no texts; leave out beam_width= and length_penalty="),
        ("train", ["global_batch_size=1"], "but this batch has a single pair; set global_batch_size=2, or larger"),
        ("visualize", ["views=similarities"], "the view similarities needs images="),
        ("visualize", ["views=[similarities,position]"], "views=similarities needs a run of images and texts, and no"),
        ("train", ["task.contrast=cosine"], "contrast 'cosine' is not one of: softmax, sigmoid"),
        ("train", ["task.templates=[seven]"], "task.templates ['seven'] must be texts that contain {} in"),
        ("train", ["data.device_batch_size=16"], "this batch is cut into 2 parts; set data.device_batch_size=null"),
        ("train", ["data.vocab_size=99"], "model.text.vocab_size is 99, but the vocabulary has 26 tokens"),
        ("train", ["mixing=mixup"], "cannot be mixed"),
        ("train", ["monitor=val/acc1"], "use one of: val/loss, val/zero_shot, val/text_recall1"),
        ("train", ["model=vit_mu4"], "the model reads no texts; choose model=clip_xs8"),
        ("train", ["data=digits"], "images with one class each; set task=classification"),
        ("train", ["data=digits", "task=classification"], "the model takes texts, but this data has images with one"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(cli, towers, digits, entry, words, sentence):
    given = [w for w in TOWERS if not words[0].startswith("model=") or "model" not in w] if entry == "train" else []
    given = given if words[0] != "data=digits" else [word for word in given if not word.startswith("data")]
    run = cli(entry, *(given or [f"run={towers}"]), *words, tiny=False, **({"folder": "run"} if given else {}))
    assert refuses(run, sentence), run.err


def test_a_run_of_classes_takes_no_labels(cli, digits_run, digits):
    run = cli("predict", f"run={digits_run}", f"images={digits}", "labels=[seven,two]")
    assert refuses(run, "does not compare images with texts, so it takes no labels=; give a run of task="), run.err
    run = cli("predict", f"run={digits_run}", f"images={digits}", "labels=[seven,two]", "templates=['a {}']")
    assert refuses(run, "does not compare images with texts; leave out templates="), run.err
    run = cli("visualize", f"run={digits_run}", f"images={digits}", "views=similarities")
    assert refuses(run, "views=similarities needs a run of images and texts"), run.err
