"""python src/predict.py, as a user runs it."""

import csv
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from vitlab.data import Digits
from vitlab.data.batches.batch import View
from vitlab.data.pools.packed_names import PackedNames
from vitlab.data.pools.splits import carve
from vitlab.errors import ConfigError, DataError
from vitlab.programs.predict import MOST_ROWS, Shown, format_lines, predict, share, write_texts
from vitlab.run.inference.given_images import Read
from vitlab.run.storage.prediction_file import FAILED, ROW
from vitlab.tasks.predictions import Prediction, WrittenText
from vitlab.vocabulary import CharacterVocabulary


def test_predictions_name_the_classes_of_new_images(cli, tmp_path, digits_run):
    pool = Digits().open()["train"]
    (tmp_path / "new" / "more").mkdir(parents=True)
    for i in range(3):
        Image.fromarray(pool.load(i)).save(tmp_path / "new" / ("more" if i == 2 else "") / f"{i}.png")
    for images, count in (("new", 3), ("new/0.png", 1), ("new/*.png", 2)):
        run = cli("predict", f"run={digits_run}", f"images={images}", "top_k=2", "output=out.csv", "overwrite=true")
        assert run.status == 0, run.err
        lines = (tmp_path / "out.csv").read_text().splitlines()
        assert lines[0] == "image,class_1,probability_1,class_2,probability_2,novelty,none_of_these"
        assert len(lines) == 1 + count
    (tmp_path / "new" / "3.png").write_bytes(b"no picture")
    run = cli("predict", f"run={digits_run}", "images=new")
    assert run.status == 3
    assert "3.png" in run.err
    run = cli("predict", f"run={digits_run}", "images=new", "on_bad_image=skip")
    assert run.status == 0
    assert "1 unreadable" in run.out
    assert cli("predict", f"run={digits_run}", "images=nothing/*.png").status == 3


def test_predictions_use_the_preprocessing_of_the_run(cli, tmp_path, digits_run):
    """The probabilities of test images are those of the run's own test."""
    pool = Digits().open()["train"]
    test = carve(pool.targets, {"train": 0.7, "val": 0.1, "test": 0.2})["test"]
    for i in range(5):
        Image.fromarray(pool.load(int(test[i]))).save(tmp_path / f"{i}.png")
    assert cli("predict", f"run={digits_run}", "images=*.png", "output=out.csv").status == 0
    with open(tmp_path / "out.csv", newline="") as f:
        predicted = list(csv.DictReader(f))
    with open(digits_run / "test_predictions.csv", newline="") as f:
        tested = list(csv.DictReader(f))[:5]
    for a, b in zip(predicted, tested, strict=True):
        assert a["class_1"] == b["predicted"]
        assert float(a["probability_1"]) == pytest.approx(float(b["probability"]), abs=1e-5)


def test_bfloat16_gives_nearly_the_same_probabilities(cli, tmp_path, digits_run):
    pool = Digits().open()["train"]
    (tmp_path / "new").mkdir()
    for i in range(8):
        Image.fromarray(pool.load(i)).save(tmp_path / "new" / f"{i}.png")
    words = [f"run={digits_run}", "images=new", "top_k=10"]
    found = []
    for precision in ("32-true", "bf16-mixed"):
        run = cli("predict", *words, f"precision={precision}", f"output={precision}.csv")
        assert run.status == 0, run.err
        rows = list(csv.DictReader((tmp_path / f"{precision}.csv").open()))
        found.append([{row[f"class_{k}"]: float(row[f"probability_{k}"]) for k in range(1, 11)} for row in rows])
    pairs = list(zip(*found, strict=True))
    assert max(abs(a[name] - b[name]) for a, b in pairs for name in a) < 0.05
    assert found[0] != found[1]
    refused = cli("predict", *words, "precision=fp8", "output=fp8.csv")
    assert (refused.status, "precision 'fp8' is not one of: 32-true, bf16-mixed" in refused.err) == (2, True)


def test_an_unknown_answer_to_bad_images_is_refused_before_anything_is_opened():
    with pytest.raises(ConfigError, match="on_bad_image 'ignore' is not one of: report, skip, error"):
        predict(OmegaConf.create({"run": "nowhere", "on_bad_image": "ignore"}))


def test_the_run_that_latest_names_is_printed(cli, tmp_path, short_run):
    Image.new("L", (8, 8)).save(tmp_path / "0.png")
    shutil.copytree(short_run, tmp_path / "runs" / "a" / "b")
    run = cli("predict", "run=latest", "images=0.png", "output=out.csv")
    assert run.out.splitlines()[0] == "run=latest is runs/a/b", run.err
    assert "1 image, 0 unreadable" in run.out
    assert cli("train", "resume=latest", tiny=False).out.startswith("resume=latest is runs/a/b\n")


def test_without_a_test_the_missing_check_is_named(cli, tmp_path, short_run):
    Image.new("L", (8, 8)).save(tmp_path / "0.png")
    shutil.copytree(short_run, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    run = cli("predict", "run=run", "images=0.png", "output=out.csv")
    assert "images of none of the classes are not found: these weights were not tested by their run" in run.out


# -- which files


def test_parts_hold_every_file_once():
    files = PackedNames.pack(str(k) for k in range(7))
    assert share(files, None) is files
    parts = [list(share(files, f"{part}/3")) for part in (1, 2, 3)]
    assert parts == [["0", "3", "6"], ["1", "4"], ["2", "5"]]
    assert list(share(files, "8/8")) == []


@pytest.mark.parametrize("part", ["0/4", "5/4", "2", "1/0", "-1/4", "1/4/2", "a/b"])
def test_what_is_no_part_is_refused(part):
    with pytest.raises(ConfigError, match=f"share={part} is not a part of several"):
        share(PackedNames.pack(["a"]), part)


# -- what is said of each

CAT = Prediction(None, "cat", 0.75, (("cat", 0.75), ("dog", 0.25)))


def test_files_that_cannot_be_read_keep_their_place():
    read = Read(places=[1, 2], pixels=[None], reasons={1: "no image"})
    files = ["a.png", "b.png", "c.png"]
    row = {"image": "c.png", "class_1": "cat", "probability_1": 0.75, "class_2": "dog", "probability_2": 0.25}
    for answer in ("report", "skip"):
        lines = format_lines(read, files, iter([CAT]), answer)
        assert lines == [(FAILED, {"image": "b.png", "reason": "no image"}), (ROW, row)]
    with pytest.raises(DataError, match="no image; repair or remove the file"):
        format_lines(read, files, iter([CAT]), "error")


def test_the_first_rows_are_shown_as_they_are():
    shown = Shown("image")
    for k in range(MOST_ROWS + 2):
        shown.add(f"[{k}].png", CAT)
    assert (shown.kind, shown.head) == ("image", "top classes")
    assert shown.rows == [(f"[{k}].png", "cat 75.0%  dog 25.0%") for k in range(MOST_ROWS)]
    texts = Shown("read")
    texts.add("a", WrittenText("b", (("b", 0.5),)))
    assert (texts.kind, texts.head) == ("read", "text")


def test_images_of_none_of_the_classes_are_always_counted():
    shown = Shown("image")
    for k in range(10):
        shown.add(f"{k}.png", replace(CAT, novelty=2.0 if k == 9 else 0.5))
    assert shown.warn_of_unknown() == ["1 of 10 images: probably none of these classes"]
    shown.add("10.png", replace(CAT, novelty=2.0))
    shown.add("11.png", replace(CAT, novelty=2.0))
    assert "compare size" in shown.warn_of_unknown()[0]


def test_a_text_has_the_tokens_that_are_there_and_their_probabilities():
    vocabulary = CharacterVocabulary("ab")
    tokens = torch.tensor([[3, 4, 2], [4, 2, 0]])
    log_probs = torch.tensor([[0.5, 0.25, 0.1234567891], [1.0, 0.5, 1.0]]).log()
    written = SimpleNamespace(tokens=tokens, present=tokens != 0, log_probs=log_probs)
    task = SimpleNamespace(vocabulary=vocabulary, generate=lambda *inputs: written)
    assert list(write_texts(task, View(torch.zeros(2, 1)))) == [
        WrittenText("ab", (("a", 0.5), ("b", 0.25), ("", 0.123457))),
        WrittenText("b", (("b", 1.0), ("", 0.5))),
    ]
