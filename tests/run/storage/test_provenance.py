"""Where a run comes from: its starts, one after the other, and a config whose digest is always known."""

import json
import subprocess
from unittest.mock import Mock

import pytest

from vitlab.checkpoints.run_folder import read_marks
from vitlab.checkpoints.run_identity import RunIdentity, is_edited
from vitlab.run.storage import provenance
from vitlab.run.storage.provenance import (
    PACKAGES,
    git_state,
    read_earlier_starts,
    record_config,
    record_start,
    versions,
)

OWN = RunIdentity("0wn00000", "mine/run", "0")


def test_versions_are_those_of_python_and_of_each_package(monkeypatch):
    found = versions()
    assert list(found) == ["python", *PACKAGES]
    assert "not installed" not in found.values()
    monkeypatch.setattr(provenance, "PACKAGES", ("numpy", "nobody-has-this"))
    assert versions() == {"python": found["python"], "numpy": found["numpy"], "nobody-has-this": "not installed"}


def test_the_commit_of_a_checkout_is_kept_and_whether_files_differ(monkeypatch, tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert git_state() == {}
    git("init")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "first")
    clean = git_state()
    assert len(clean["commit"]) == 40
    assert not clean["modified"]
    (tmp_path / "new").touch()
    assert git_state() == {"commit": clean["commit"], "modified": True}
    monkeypatch.setenv("PATH", "")
    assert git_state() == {}


def test_each_start_is_added_to_those_before(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["vitlab", "train"])
    record_start(tmp_path, ["name=a b"], 0, 20)
    record_start(tmp_path, ["resume=run"], 20, 40)
    first, second = json.loads((tmp_path / "provenance.json").read_text())
    assert (first["from_step"], first["to_step"], second["from_step"], second["to_step"]) == (0, 20, 20, 40)
    assert first["command"] == "vitlab train 'name=a b'"
    assert second.keys() == {"time", "from_step", "to_step", "command", "device", "git", "own_code", "versions"}


def test_a_start_with_changed_code_of_the_user_is_warned_of(tmp_path, monkeypatch, recwarn):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lab_of_provenance").mkdir()
    module = tmp_path / "lab_of_provenance" / "losses.py"
    for content in ("a = 1", "a = 1"):
        module.write_text(content)
        record_start(tmp_path, [], 0, 20, ["lab_of_provenance"])
    assert not recwarn
    module.write_text("a = 2")
    with pytest.warns(UserWarning, match="the code of lab_of_provenance has changed since the last start of this run"):
        record_start(tmp_path, [], 20, 40, ["lab_of_provenance"])
    digests = [start["own_code"] for start in read_earlier_starts(tmp_path / "provenance.json")]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("content", [b"{}", b"", b"\xff", b"\xff\xfe", b'[{"time": 1'])
def test_a_damaged_record_is_set_aside(tmp_path, content):
    path = tmp_path / "provenance.json"
    assert read_earlier_starts(path) == []
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=r"is damaged; it is kept as provenance\.damaged\.json"):
        assert read_earlier_starts(path) == []
    assert not path.exists()
    assert (tmp_path / "provenance.damaged.json").read_bytes() == content


def test_a_start_that_is_killed_leaves_a_config_that_is_known(tmp_path, monkeypatch):
    record_config(tmp_path, OWN, b"first")
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "write_whole", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            record_config(tmp_path, OWN, b"second")
    assert not is_edited(tmp_path)
    record_config(tmp_path, OWN, b"third")
    assert not is_edited(tmp_path)
    (tmp_path / "config.yaml").write_bytes(b"by hand")
    assert is_edited(tmp_path)


def test_the_last_two_configs_are_known_and_no_earlier_one(tmp_path):
    for content in (b"first", b"second", b"third"):
        record_config(tmp_path, OWN, content)
    assert len(read_marks(tmp_path)["config_yaml"]) == 2
    assert read_marks(tmp_path)["run"]["id"] == OWN.id
    (tmp_path / "config.yaml").write_bytes(b"second")
    assert not is_edited(tmp_path)
    (tmp_path / "config.yaml").write_bytes(b"first")
    assert is_edited(tmp_path)
