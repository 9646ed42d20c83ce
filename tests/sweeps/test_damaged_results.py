"""A damaged result of a job, and a table that cannot be written, are named in one sentence."""

import json

import pytest
from conftest import refuses
from stub_sweep import frozen

from vitlab.sweeps.folder import State


@pytest.fixture
def sweep(tmp_path):
    sweep = frozen(tmp_path / "runs" / "mine", ["a", "b"])
    for name in ("a", "b"):
        sweep.write_state(name, State(status="done", score=0.5, seconds=1.0))
        (sweep.path / name).mkdir()
        (sweep.path / name / "result.json").write_text(json.dumps({"score": 0.5, "test": {"test/acc1": 0.5}}))
    return sweep


@pytest.mark.parametrize("content", [b"", b"\xff[", b"[]", b"{}", b'{"score": "x"}', b'{"score": 1, "test": 3}', None])
def test_a_damaged_result_of_a_job_is_named(cli, sweep, content):
    path = sweep.path / "a" / "result.json"
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)
    for command in (["sweeps", "mine", "pictures=true"], ["train", "-m", "sweep=mine"]):
        refused = cli(*command, tiny=False)
        assert refused.status == 4, refused.err
        assert refuses(refused, "a/result.json is damaged: remove it, and resume=")


def test_a_table_that_cannot_be_written_is_named(cli, sweep):
    (sweep.path / "results.csv" / "x").mkdir(parents=True)
    refused = cli("sweeps", "mine", "pictures=true")
    assert refused.status == 6
    assert refuses(refused, "runs/mine/results.csv: Is a directory")
