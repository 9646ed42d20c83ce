"""`runs` lists, moves and removes what was asked for, and nothing that is in use."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import refuses
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


def test_a_job_of_a_sweep_and_the_config_of_a_logger_are_no_runs(cli, tmp_path):
    run = write_run(tmp_path / "runs", "lr/seed-0", acc1=0.5)
    for other in (run.parent / "jobs" / "seed-0", run / "wandb" / "files"):
        other.mkdir(parents=True)
        shutil.copy(run / "config.yaml", other)
    for root in ("runs", "runs/lr", "runs/lr/seed-0"):
        assert "jobs" not in (shown := cli("runs", root, exact=True)).out, root
        assert "wandb" not in shown.out
    assert cli("runs", "root=runs", "where=seed=0", "rm=true", exact=True).out == "runs/lr/seed-0 removed\n"
    assert (run.parent / "jobs" / "seed-0" / "config.yaml").is_file()


@pytest.mark.usefixtures("two")
def test_each_printed_column_can_be_asked_for_and_a_path_is_never_broken(cli, tmp_path):
    folder = write_run(tmp_path / "runs", f"{'a_long_name_' * 9}/1", note="a note of many words " * 9)
    shown = cli("runs", "where=state=stopped,run~long", exact=True)
    assert str(folder.relative_to(tmp_path)) in shown.out, shown.err
    assert "1 run below runs" in shown.out
    assert "2 runs below runs" in cli("runs", "where=state=ended", "sort=run", exact=True).out
    assert refuses(cli("runs", "output=table.xlsx", exact=True), "output=table.xlsx ends in none of .csv")


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
