"""Where a run starts: in a folder of its own, or in the folder of the run that it resumes, and under whose identity."""

import json
import os
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from vitlab.checkpoints.run_folder import write_marks
from vitlab.checkpoints.run_identity import RunIdentity
from vitlab.checkpoints.run_lock import is_in_use, leave_all
from vitlab.config.job import Job
from vitlab.config.redaction import MARK, Redaction
from vitlab.errors import CheckpointError, ConfigError
from vitlab.run.storage import start
from vitlab.run.storage.start import PLACE, RunPlace, Start, claim_folder, find_identity

OWN = {"id": "0wn00000", "name": "mine/run", "config": "0"}


@pytest.fixture(autouse=True)
def no_locks(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(PLACE, raising=False)
    yield
    leave_all()


def config(**keys):
    return OmegaConf.create({"name": "mine", "resume": None, "break_lock": False} | keys)


def job_in(folder, named=False):
    return Job("train", folder.absolute(), named, [], {})


# -- the folder


def test_a_folder_is_locked_meanwhile_and_goes_if_it_stays_empty(tmp_path):
    with claim_folder(config(), job_in(tmp_path / "runs" / "mine" / "now")) as place:
        folder = tmp_path / "runs" / "mine" / "now"
        assert place == RunPlace(str(folder), None)
        assert is_in_use(folder)
        assert json.loads(os.environ[PLACE]) == [str(folder), None, None]
    assert PLACE not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_runs_that_start_in_one_second_have_a_folder_each(tmp_path):
    job = job_in(tmp_path / "now")
    with claim_folder(config(), job) as first, claim_folder(config(), job) as second:
        assert (first.folder, second.folder) == (str(tmp_path / "now"), str(tmp_path / "now-2"))


def test_a_folder_that_is_named_is_that_one_and_holds_no_run(tmp_path):
    (tmp_path / "run").mkdir()
    with claim_folder(config(), job_in(tmp_path / "run", named=True)) as place:
        assert place.folder == str(tmp_path / "run")
    (tmp_path / "run" / "metrics.csv").touch()
    with pytest.raises(ConfigError, match="run holds a run"), claim_folder(config(), job_in(tmp_path / "run", True)):
        pass
    assert not is_in_use(tmp_path / "run")


def test_a_run_resumes_in_its_own_folder(tmp_path):
    checkpoint = "run/checkpoints/latest.ckpt"
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with claim_folder(config(resume=checkpoint), job_in(tmp_path / "now")) as place:
        assert place == RunPlace(str(tmp_path / "run"), checkpoint)
        assert is_in_use(tmp_path / "run")
    assert not is_in_use(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_run_of_the_same_config_is_found(tmp_path, monkeypatch, named, ended):
    own, asked = tmp_path / "runs" / "earlier", []
    other = own.with_name("later")
    for folder in (own, other):
        folder.mkdir(parents=True)
    if ended:
        (own / "result.json").write_text('{"score": null, "test": {}, "steps": 38}')
    monkeypatch.setattr(start, "find_own_run", lambda cfg, folders: asked.extend(folders) or own)
    job = job_in(own if named else tmp_path / "runs" / "now", named)
    with claim_folder(config(resume="auto"), job) as place:
        assert place == RunPlace(str(own), str(own), 38 if ended else None)
        assert is_in_use(own)
    assert asked == ([own] if named else [own, other])


def test_a_run_of_a_config_that_is_new_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "find_own_run", lambda cfg, folders: None)
    with claim_folder(config(resume="auto"), job_in(tmp_path / "now")) as place:
        assert place == RunPlace(str(tmp_path / "now"), None)


def test_another_process_of_the_run_is_told_its_place(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv(PLACE, json.dumps(RunPlace("runs/mine", "runs/mine", True)))
    with claim_folder(config(), job_in(tmp_path / "now")) as place:
        assert place == RunPlace("runs/mine", "runs/mine", True)
    assert PLACE in os.environ
    assert list(tmp_path.iterdir()) == []


# -- the identity


def identity(folder, **before):
    cfg = config(api_key="a secret word")
    return find_identity(cfg, before, folder, Redaction(cfg))


def test_a_new_run_has_an_identity_of_its_own(tmp_path):
    one, other = identity(tmp_path / "run"), identity(tmp_path / "run")
    assert one.name == "mine/run"
    assert one.config == other.config
    assert len({one.id, other.id}) == 2
    assert identity(tmp_path / "a secret word").name == f"mine/{MARK}"


def test_a_resumed_run_keeps_the_identity_of_its_state(tmp_path):
    write_marks(tmp_path, run=OWN | {"id": "0ther000"})
    assert identity(tmp_path, identity=OWN) == RunIdentity(**OWN)
    with pytest.raises(CheckpointError, match="its identity of a run is 'mine'"):
        identity(tmp_path, identity="mine")


def test_a_state_without_one_has_that_of_its_folder(tmp_path):
    write_marks(tmp_path, run=OWN)
    assert identity(tmp_path, config={}) == RunIdentity(**OWN)
    assert identity(tmp_path, id=OWN["id"]) == RunIdentity(**OWN)
    other = identity(tmp_path, id="0ther000")  # which a sweep gave to its job
    assert (other.id, other.name) == ("0ther000", f"mine/{tmp_path.name}")
    assert identity(tmp_path).id != OWN["id"]  # what is not resumed is new, whatever the folder held


# -- what is kept of it


def start_in(folder, **keys):
    cfg = config(**keys)
    return Start(cfg, job_in(folder), folder, Redaction(cfg), RunIdentity(**OWN), {"model": "vit"}, None, {}, 0, None)


def test_a_job_of_a_sweep_knows_its_sweep(tmp_path):
    assert start_in(tmp_path / "sweep" / "seed-1").sweep is None
    (tmp_path / "sweep" / "jobs" / "seed-1").mkdir(parents=True)
    (tmp_path / "sweep" / "jobs" / "seed-1" / "job.json").touch()
    assert start_in(tmp_path / "sweep" / "seed-1").sweep == tmp_path / "sweep"


def test_a_checkpoint_holds_what_rebuilds_the_run_and_no_secret(tmp_path):
    data = SimpleNamespace(class_names=("cat", "dog"), vocabularies=lambda: {"vocabulary": 1}, fingerprint="f")
    record = start_in(tmp_path, api_key="a secret word", lr=0.1, rate="${lr}").record(data, 16, 1)
    assert record.pop("versions").keys() >= {"python", "torch"}
    assert record.pop("digests").keys() == {"config", "code"}
    assert record.pop("machine")["processes"] == 1
    config = record.pop("config")
    assert (config["api_key"], config["rate"]) == (MARK, "${lr}")  # a reference stays one
    assert record == {
        "choices": {"model": "vit"},
        "class_names": ["cat", "dog"],
        "vocabulary": 1,
        "device_batch_size": 16,
        "fingerprint": "f",
        "identity": OWN,
    }
