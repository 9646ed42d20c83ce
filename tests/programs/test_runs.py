"""`runs` lists, moves and removes what was asked for, and nothing that is in use."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from reports.test_index import write_run

from vitlab.checkpoints.run_lock import leave, take
from vitlab.errors import CheckpointError

HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def two(tmp_path):
    write_run(tmp_path / "runs", "vit/1", depth=2, acc1=0.5)
    write_run(tmp_path / "runs", "vit/2", depth=4, acc1=0.75)
    write_run(tmp_path / "runs", "vit/3", depth=4)


@pytest.mark.usefixtures("two")
def test_the_table_shows_what_was_asked_for_best_first(cli):
    run = cli("runs", "where=score>0.1", "sort=acc1", "output=table.csv", exact=True)
    assert run.status == 0, run.err
    with open("table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == ["runs/vit/2", "runs/vit/1"]
    assert [row["model.depth"] for row in rows] == ["4", "2"]
    assert rows[0]["score"] == "val/acc1 75.00%"
    shown = cli("runs", "runs", exact=True)
    assert "3 runs below runs" in shown.out
    assert "stopped" in shown.out


@pytest.mark.usefixtures("two")
def test_a_run_in_use_is_neither_removed_nor_moved(cli, monkeypatch):
    refused = cli("runs", "rm=true", exact=True)
    assert (refused.status, "rm=true and archive= need where=" in refused.err) == (2, True)
    monkeypatch.setattr("vitlab.programs.runs.take", in_use_is_vit_3)
    run = cli("runs", "where=depth=4", "rm=true", exact=True)
    assert run.status == 4
    assert "runs/vit/3: in use, and not changed" in run.err
    assert sorted(path.name for path in Path("runs/vit").iterdir()) == ["1", "3"]
    assert cli("runs", "where=[depth=2]", "archive=old", exact=True).status == 0
    assert Path("old/vit/1/config.yaml").is_file()
    assert not Path("old/vit/1/.lock").exists()
    assert sorted(path.name for path in Path("runs/vit").iterdir()) == ["3"]


def in_use_is_vit_3(folder, *, break_lock):
    if folder.name == "3":
        raise CheckpointError("in use")
    take(folder, break_lock=break_lock)


def test_another_process_holds_a_run(cli, two, tmp_path):
    lock = str(tmp_path / "runs" / "vit" / "1" / ".lock")
    with subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        run = cli("runs", "where=depth=2", "rm=true", exact=True)
        other.kill()
    assert run.status == 4
    assert (tmp_path / "runs" / "vit" / "1" / "config.yaml").is_file()
    leave(tmp_path / "runs" / "vit" / "1")
