"""The checkpoint that a run resumes from: the newest, or the one before it if that is damaged."""

import shutil

import pytest

from vitlab.errors import CheckpointError
from vitlab.run.storage.newest_state import newest_state


@pytest.fixture
def run(short_run, tmp_path):
    shutil.copytree(short_run, tmp_path / "run")
    return tmp_path / "run"


def test_the_newest_is_read(run):
    path, state = newest_state(str(run))
    assert (path.name, state["global_step"]) == ("latest.ckpt", 8)


def test_the_one_before_takes_the_place_of_a_damaged_one(run, capsys):
    latest, before = (run / "checkpoints" / f"{name}.ckpt" for name in ("latest", "previous"))
    shutil.copy(latest, before)
    latest.write_bytes(latest.read_bytes()[:1000])
    path, state = newest_state(str(run))
    assert (path, state["global_step"]) == (latest, 8)
    assert "resuming from previous.ckpt" in capsys.readouterr().out
    assert not before.exists()


def test_without_any_it_is_refused(run):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError):
        newest_state(str(run))
