"""python src/fit.py, as a user runs it: a folder in, a tested classifier out."""

import json

import pytest
from conftest import image_folder, refuses

from vitlab.programs import fit as program
from vitlab.trials.candidates import Candidate

SMALL = ("model=vit_mu4", "crop=shifted", "data.image_size=16", "trainer=cpu", "trainer.precision=32-true")
SMALL += ("data.loading.num_workers=0",)


@pytest.fixture
def photos(tmp_path):
    return image_folder(tmp_path / "photos", splits=("train", "test"), count=12)


@pytest.fixture
def hurried(monkeypatch):
    """Two small models, of which the second does not learn, in seconds rather than minutes."""
    slow = Candidate("frozen", 16, (*SMALL, "optimizer.lr=1e-9"))
    models = [Candidate("small", 16, (*SMALL, "optimizer.lr=3e-3")), slow]
    monkeypatch.setattr(program, "list_candidates", lambda images, weights: models)
    monkeypatch.setattr(program, "LEAST_MINUTES", {False: 0.01, True: 0.01})
    monkeypatch.setattr(program, "PROBE", 0.1)


def fitted(cli, photos, *words):
    return cli("fit", f"data.source.root={photos}", "output=fitted", "export=false", *words, tiny=False)


# -- what is refused


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["minutes=0.1"], "minutes=0.1 is too short to survey, try, train and test; give at least minutes=1"),
        (["minutes=-3"], "minutes"),
        (["data.source.root=nowhere"], "there is no folder nowhere"),
        (["candidates=[resnet_99]"], "candidates: resnet_99 is not one of: "),
    ],
)
def test_bad_words_are_refused(cli, photos, tmp_path, words, sentence):
    run = fitted(cli, photos, *words)
    assert refuses(run, sentence)
    assert run.status in (2, 3)
    assert not (tmp_path / "fitted" / "model").exists()


def test_one_class_is_refused(cli, tmp_path):
    root = image_folder(tmp_path / "photos", classes=("cat",), count=20)
    run = fitted(cli, root, "minutes=2")
    assert run.status == 3
    assert refuses(run, "the data has one class, cat; a classifier needs at least two")


def test_an_empty_folder_is_refused_and_leaves_nothing(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    assert refuses(fitted(cli, tmp_path / "empty"), "no class folder")
    assert not (tmp_path / "fitted").exists()


def test_a_folder_of_something_else_is_left_alone(cli, photos, tmp_path):
    (tmp_path / "fitted").mkdir()
    (tmp_path / "fitted" / "mine.txt").write_text("mine")
    for more in ([], ["overwrite=true"]):
        assert refuses(fitted(cli, photos, *more), "output=fitted is not empty and holds no fit")
    assert (tmp_path / "fitted" / "mine.txt").read_text() == "mine"


# -- to the end


@pytest.mark.slow
@pytest.mark.ci
def test_a_folder_becomes_a_tested_classifier(cli, photos, tmp_path, hurried, monkeypatch):
    """Killed before its final run, it goes on with the trials that it has; the changed folder is noted."""
    train = program.train_final

    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "train_final", stop)
    assert fitted(cli, photos, "minutes=0.2").status == 130
    before = json.loads((tmp_path / "fitted" / "fit.json").read_text())
    assert {"data", "trials", "plan"} <= before.keys()
    assert not (tmp_path / "fitted" / "model").exists()

    def train_and_add(*given):
        run = train(*given)
        (photos / "train" / "cat" / "new.png").write_bytes((photos / "train" / "cat" / "1.png").read_bytes())
        return run

    monkeypatch.setattr(program, "train_final", train_and_add)
    run = fitted(cli, photos, "minutes=0.2")
    assert run.status == 0, run.err
    after = json.loads((tmp_path / "fitted" / "fit.json").read_text())
    assert (after["trials"], after["plan"]) == (before["trials"], before["plan"])
    assert "continues" in run.out
    assert "the images have changed meanwhile: 48 at the start, 49 at the end" in run.out

    result = json.loads((tmp_path / "fitted" / "model" / "result.json").read_text())
    assert result["steps"] == after["plan"]["steps"]
    assert result["calibration"]["temperature"] > 0
    assert result["partial"] == []
    for trial in (tmp_path / "fitted" / "trials").iterdir():
        tested = json.loads((trial / "result.json").read_text())["test"]
        assert not any(name.startswith("test/") for name in tested)
    assert f"{result['test']['test/acc1']:.2%} of 24 images, tested once" in run.out

    again = fitted(cli, photos, "minutes=0.2")
    assert again.status == 0
    assert json.loads((tmp_path / "fitted" / "fit.json").read_text()) == after
    assert refuses(fitted(cli, photos, "minutes=0.3"), "output=fitted holds a fit with other arguments")
