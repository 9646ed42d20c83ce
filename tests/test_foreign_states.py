"""A checkpoint in the folder of another run is refused, and both runs are named; elsewhere it opens on its own."""

import json
import shutil

import pytest
import torch
from conftest import BARE, FEW, evaluated, image_folder, refuses

import vitlab
from vitlab.checkpoints import file
from vitlab.checkpoints.run_folder import read_marks
from vitlab.errors import CheckpointError
from vitlab.weights import source

NAMES = ("best", "latest", "previous")
OTHER = {"id": "0ther000", "name": "another/run", "config": "0"}
MORE = ["trainer.max_epochs=3"]


@pytest.fixture
def run(cli, short_run, tmp_path):
    """A run to go on with."""
    shutil.copytree(short_run, tmp_path / "run")
    return tmp_path / "run"


def of_another(source, target):
    """Copy a checkpoint as another run would have written it."""
    checkpoint = torch.load(source, weights_only=True)
    checkpoint["run"]["identity"] = OTHER
    target.parent.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint, target)
    return target


def written(folder):
    paths = (path for path in folder.rglob("*") if path.is_file() and ".hydra" not in path.parts)
    return {path: path.read_bytes() for path in paths if path.name != "train.log"}


def names_both(refusal, run):
    own = read_marks(run)["run"]
    told = [f"{identity['name']} ({identity['id']})" for identity in (OTHER, own)]
    return refusal.status == 4 and all(refuses(refusal, words) for words in told)


def test_folder_and_checkpoints_carry_one_identity(short_run):
    own = read_marks(short_run)["run"]
    assert own["name"] == "vit_mu4_digits/run"
    for name in NAMES[:2]:
        assert file.read(short_run / "checkpoints" / f"{name}.ckpt")["run"]["identity"] == own


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_resume_refuses_a_checkpoint_of_another_run(cli, run, name):
    of_another(run / "checkpoints" / "latest.ckpt", run / "checkpoints" / f"{name}.ckpt")
    before = written(run)
    for words in (["resume=run"], ["resume=run/checkpoints/latest.ckpt"]):
        assert names_both(cli("train", *words, *MORE, tiny=False), run)
        assert names_both(cli("check", *words, *MORE), run)
    assert written(run) == before


def test_a_resume_does_not_fall_back_to_the_state_of_another_run(cli, run):
    of_another(run / "checkpoints" / "latest.ckpt", run / "checkpoints" / "previous.ckpt")
    (run / "checkpoints" / "latest.ckpt").write_bytes(b"damaged")
    before = written(run)
    assert names_both(cli("train", "resume=run", *MORE, tiny=False), run)
    assert written(run) == before


def test_without_its_own_name_a_folder_is_that_of_its_state(cli, run):
    (run / ".identity").unlink()  # hidden files were not copied
    of_another(run / "checkpoints" / "best.ckpt", run / "checkpoints" / "best.ckpt")
    refusal = cli("train", "resume=run", *MORE, tiny=False)
    assert refusal.status == 4
    assert "best.ckpt belongs to the run another/run (0ther000), but lies in the folder of the run vit" in refusal.err


COMMANDS = {
    "evaluate": ["run=run"],
    "predict": ["run=run", "images=images"],
    "visualize": ["run=run", "images=images"],
    "probe": ["run=run"],
    "features": ["run=run", "output=features.npz"],
    "export": ["run=run", "format=timm", "output=exported"],
    "train": [*FEW, "model.pretrained=run"],
}


@pytest.mark.parametrize("damage", ["of another run", "missing"])
def test_every_command_refuses_a_best_model_that_is_not_the_runs(cli, run, tmp_path, damage):
    image_folder(tmp_path / "images", count=1)
    best = run / "checkpoints" / "best.ckpt"
    if damage == "missing":
        best.unlink()
    else:
        of_another(best, best)
    before = written(run)
    for entry, words in COMMANDS.items():
        refusal = cli(entry, *words, folder="new" if entry == "train" else None)
        if damage == "missing":
            assert refuses(refusal, "no best.ckpt; to use another checkpoint, name its file: run/checkpoints/latest")
        else:
            assert names_both(refusal, run), entry
    with pytest.raises(CheckpointError):
        vitlab.load(run)
    assert written(run) == before


def test_the_latest_state_is_used_where_it_is_named(cli, run):
    (run / "checkpoints" / "best.ckpt").unlink()
    assert cli("evaluate", "run=run/checkpoints/latest.ckpt").status == 0
    assert evaluated(run)["checkpoint"].endswith("latest.ckpt")


def test_a_run_that_has_ended_without_validations_is_its_latest_state(cli, tmp_path):
    options = [*BARE, *FEW, "trainer.max_steps=2", "trainer.max_epochs=-1", "+trainer.limit_val_batches=0"]
    assert cli("train", *options, folder="run").status == 0
    assert cli("evaluate", "run=run").status == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    again = evaluated(tmp_path / "run")
    assert {name: again[name] for name in result["test"]} == result["test"]
    (tmp_path / "run" / "result.json").unlink()  # as if it had been killed
    assert refuses(cli("evaluate", "run=run"), "holds no best.ckpt")


def test_a_file_in_no_runs_folder_opens_as_its_own(cli, run, tmp_path):
    lone = of_another(run / "checkpoints" / "best.ckpt", tmp_path / "lone" / "model.ckpt")
    image_folder(tmp_path / "images", count=1)
    assert cli("evaluate", "run=lone/model.ckpt", "output=scores").status == 0
    assert vitlab.load(lone).predict(tmp_path / "images" / "train" / "cat")
    assert source.find(str(lone)).tensors


def test_a_state_in_no_runs_folder_makes_it_that_of_its_run(cli, run, tmp_path):
    lone = tmp_path / "lone"
    own = of_another(run / "checkpoints" / "latest.ckpt", lone / "state.ckpt")
    shutil.copy(run / "checkpoints" / "latest.ckpt", lone / "second.ckpt")
    assert cli("train", f"resume={own}", *MORE, tiny=False).status == 0
    assert read_marks(lone)["run"] == OTHER
    assert file.read(lone / "checkpoints" / "latest.ckpt")["run"]["identity"] == OTHER
    before = written(lone)
    refusal = cli("train", "resume=lone/second.ckpt", *MORE, tiny=False)
    assert refusal.status == 4
    assert "lies in the folder of the run another/run (0ther000)" in refusal.err
    assert written(lone) == before


def test_a_folder_at_another_place_is_the_same_run(cli, run, tmp_path):
    moved = run.rename(tmp_path / "moved")
    own = read_marks(moved)["run"]
    assert cli("train", "resume=moved", *MORE, tiny=False).status == 0
    assert read_marks(moved)["run"] == file.read(moved / "checkpoints" / "latest.ckpt")["run"]["identity"] == own
    assert vitlab.load(moved).path == moved / "checkpoints" / "best.ckpt"


def test_the_folder_of_another_job_is_not_taken_for_this_one(cli, run, tmp_path):
    home = tmp_path / "jobs" / "run"
    home.mkdir(parents=True)
    (home / "job.json").write_text(json.dumps({"run_id": "0ther000"}))
    refusal = cli("train", "resume=run", *MORE, tiny=False)
    assert refuses(refusal, f"run holds the run vit_mu4_digits/run ({read_marks(run)['run']['id']})")
    assert refuses(refusal, "job of this name is another run, 0ther000")


def test_a_config_that_was_edited_is_named(cli, run):
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("max_epochs: 2", "max_epochs: 3"))
    before = written(run)
    assert refuses(cli("train", "resume=run", tiny=False), "run/config.yaml was changed after the run wrote it")
    assert written(run) == before
    with pytest.warns(UserWarning, match=r"config\.yaml was changed after the run wrote it"):
        vitlab.load(run)
    (run / "config.yaml").unlink()
    assert cli("train", "resume=run", *MORE, tiny=False).status == 0
    assert (run / "config.yaml").read_text() == text.replace("max_epochs: 2", "max_epochs: 3")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"run": 5}', b'{"run": {"id": 3}}', b'{"config_yaml": 5}'])
def test_a_damaged_name_of_a_run_is_one_sentence(cli, run, content):
    (run / ".identity").write_bytes(content)
    for refusal in (cli("train", "resume=run", *MORE, tiny=False), cli("evaluate", "run=run")):
        assert refusal.status == 4
        assert refuses(refusal, "run/.identity is damaged")


def test_a_state_of_an_earlier_version_is_that_of_its_folder(cli, run):
    latest, own = run / "checkpoints" / "latest.ckpt", read_marks(run)["run"]
    checkpoint = torch.load(latest, weights_only=True)
    del checkpoint["run"]["identity"]
    torch.save(checkpoint, latest)
    assert cli("train", "resume=run", *MORE, tiny=False).status == 0
    assert file.read(latest)["run"]["identity"] == read_marks(run)["run"] == own
