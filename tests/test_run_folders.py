"""A run's folder belongs to one run and one process at a time, and is never overwritten."""

import json
import os
import shutil
import socket
import subprocess
import sys
import weakref
from datetime import datetime
from types import SimpleNamespace

import pytest
import torch
from conftest import BARE, SRC, mostly_slow, refuses

from vitlab.checkpoints import file, run_lock
from vitlab.checkpoints.run_folder import check_name
from vitlab.errors import ConfigError

SHORT = [*BARE, "trainer.max_steps=2", "trainer.max_epochs=-1", "global_batch_size=128"]


@pytest.fixture
def held(tmp_path):
    """Another process that has taken a folder."""
    processes = []

    def hold(folder):
        folder.mkdir(exist_ok=True)
        code = "import sys; from pathlib import Path; from vitlab.checkpoints.run_lock import take\n"
        code += "take(Path(sys.argv[1]), break_lock=False); print('taken', flush=True); sys.stdin.read()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SRC)},
        )
        processes.append(process)
        assert process.stdout.readline() == b"taken\n"
        return process

    yield hold
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def run(cli, short_run, tmp_path):
    """A run to go on with."""
    shutil.copytree(short_run, tmp_path / "run")
    return tmp_path / "run"


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_run_refuses_a_folder_that_holds_one(cli, run):
    before = files(run)
    again = cli("train", "trainer.max_steps=1", folder="run")
    assert again.status == 2
    assert "run holds a run" in again.err
    assert "resume=run" in again.err
    assert files(run) == before


def test_a_folder_in_use_is_refused_and_its_owner_named(cli, run, held):
    owner, before = held(run), files(run)
    for overrides in (["resume=run", "trainer.max_epochs=3"], ["resume=run", "break_lock=true"]):
        again = cli("train", *overrides, tiny=False)
        assert again.status == 4
        assert f"in use by process {owner.pid} on {socket.gethostname()}" in again.err
    assert {path: content for path, content in files(run).items() if path.name != ".lock"} == {
        path: content for path, content in before.items() if path.name != ".lock"
    }
    held(run.with_name("empty"))
    assert cli("train", *SHORT, folder="empty").status == 4


def test_the_folder_of_a_process_that_was_killed_is_taken_over(cli, run, held):
    owner = held(run)
    for name in (f".latest.ckpt.{owner.pid}", f".best.ckpt.{owner.pid}.tmp"):
        (run / "checkpoints" / name).write_bytes(b"half of it")
    owner.kill()
    owner.wait()
    resumed = cli("train", "resume=run", "trainer.max_epochs=3", tiny=False)
    assert resumed.status == 0, resumed.err
    assert f"was locked by process {owner.pid}" in resumed.out
    left = {path.name for path in (run / "checkpoints").iterdir() if not path.name.startswith("step_")}
    assert left == {"best.ckpt", "latest.ckpt", "previous.ckpt"}
    assert not (run / ".lock").exists()


def test_of_another_machine_nobody_knows(cli, run):
    (run / ".lock").write_text(json.dumps({"host": "elsewhere", "pid": 7, "time": "2026-11-01 12:00:00"}))
    resumed = cli("train", "resume=run", "trainer.max_epochs=3", tiny=False)
    assert resumed.status == 4
    assert "process 7 on elsewhere" in resumed.err
    assert "break_lock=true" in resumed.err
    assert cli("train", "resume=run", "trainer.max_epochs=3", "break_lock=true", tiny=False).status == 0


@pytest.mark.slow
@pytest.mark.ci
def test_starts_in_the_same_second_have_a_folder_each(cli, tmp_path, monkeypatch):
    clock = SimpleNamespace(now=lambda: datetime(2026, 11, 22, 12, 0, 0))
    monkeypatch.setattr("hydra.core.utils.datetime", clock)
    for _ in range(2):
        started = cli("train", *SHORT, "name=same")
        assert started.status == 0, started.err
    folders = sorted(path.parent.name for path in tmp_path.glob("runs/same/*/result.json"))
    assert folders == ["2026-11-22_12-00-00", "2026-11-22_12-00-00-2"]


def test_the_state_before_is_kept_and_gone_on_from(cli, run):
    assert cli("train", "resume=run", "trainer.max_epochs=3", tiny=False).status == 0
    steps = [file.read(run / "checkpoints" / f"{name}.ckpt")["global_step"] for name in ("previous", "latest")]
    assert steps == [8, 12]
    latest = run / "checkpoints" / "latest.ckpt"
    whole = file.read(latest)["state_dict"]
    content = bytearray(latest.read_bytes())
    content[len(content) // 2] ^= 1
    latest.write_bytes(content)
    resumed = cli("train", "resume=run", "trainer.max_epochs=3", tiny=False)
    assert resumed.status == 0, resumed.err
    assert "latest.ckpt is damaged" in resumed.out
    assert "resuming from previous.ckpt" in resumed.out
    again = file.read(latest)["state_dict"]
    assert all(torch.equal(value, again[name]) for name, value in whole.items())
    assert file.read(run / "checkpoints" / "previous.ckpt")["global_step"] == 8  # not the damaged one


@pytest.mark.parametrize("damage", ["flipped", "removed"])
def test_a_damaged_best_model_blocks_no_resume(cli, run, damage):
    best = run / "checkpoints" / "best.ckpt"
    content = bytearray(best.read_bytes())
    content[len(content) // 2] ^= 1
    best.unlink() if damage == "removed" else best.write_bytes(content)
    with pytest.warns(UserWarning, match="the best model is chosen only"):
        resumed = cli("train", "resume=run", "trainer.max_epochs=3", tiny=False)
    assert resumed.status == 0, resumed.err
    assert file.read(best)["global_step"] == 12


@pytest.mark.parametrize("content", mostly_slow([b"{}", b"", b"\xff\xfe", b'[{"time": 1']))
def test_a_damaged_record_of_starts_blocks_no_resume(cli, run, content):
    (run / "provenance.json").write_bytes(content)
    with pytest.warns(UserWarning, match=r"kept as provenance\.damaged\.json"):
        resumed = cli("train", "resume=run", "trainer.max_epochs=3", tiny=False)
    assert resumed.status == 0, resumed.err
    assert [start["from_step"] for start in json.loads((run / "provenance.json").read_text())] == [8]
    assert (run / "provenance.damaged.json").read_bytes() == content


@pytest.mark.parametrize(
    "content", mostly_slow([b"step,val/loss\nx,y\n7\n3,0.5,9,9\n", b"", b"nothing\n", b"\0\xff\n"])
)
def test_a_damaged_table_of_metrics_blocks_no_resume(cli, run, content):
    (run / "metrics.csv").write_bytes(content)
    resumed = cli("train", "resume=run", "trainer.max_epochs=3", tiny=False)
    assert resumed.status == 0, resumed.err
    assert (run / "metrics.csv").read_text().startswith("step,")
    assert "metrics.csv was changed after the run saved step 8" in resumed.out
    assert (run / "metrics.damaged.csv").read_bytes() == content


@pytest.mark.parametrize("change", mostly_slow(["renamed", "removed"]))
def test_a_folder_that_goes_midway_ends_the_run_in_a_sentence(cli, tmp_path, monkeypatch, change):
    from vitlab.tasks import Classification

    step = Classification.training_step

    def going(self, batch, batch_idx):
        folder = tmp_path / "run"
        if self.global_step == 1 and folder.exists():
            shutil.rmtree(folder) if change == "removed" else folder.rename(tmp_path / "elsewhere")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Classification, "training_step", going)
    run = cli("train", *BARE, "trainer.max_epochs=1", folder="run")
    assert run.status == 6
    assert "removed or renamed" in run.err
    assert "Traceback" not in run.err
    assert not (tmp_path / "run").exists()


def test_a_lock_is_not_inherited_by_forked_workers(tmp_path, held):
    """A worker that outlives its run for some seconds does not keep the folder locked."""
    code = "import os, sys, time; from pathlib import Path; from vitlab.checkpoints.run_lock import take\n"
    code += "take(Path(sys.argv[1]), break_lock=False)\n"
    code += "if os.fork() == 0: time.sleep(20); os._exit(0)\n"
    code += "print('taken', flush=True); os.kill(os.getpid(), 9)"
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-c", code, str(folder)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SRC)}, stdout=subprocess.DEVNULL, check=False)
    run_lock.take(folder, break_lock=False)
    run_lock.leave(folder)
    assert not (folder / ".lock").exists()


def test_the_state_it_goes_on_from_is_not_kept_in_memory(cli, run, monkeypatch):
    from vitlab.tasks import Classification

    read, step, loaded, alive = file.read, Classification.training_step, [], []

    def watched(path):
        checkpoint = read(path)
        loaded.extend(weakref.ref(value) for value in checkpoint["state_dict"].values())
        return checkpoint

    def looked(self, batch, batch_idx):
        alive.append(sum(tensor() is not None for tensor in loaded))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(file, "read", watched)
    monkeypatch.setattr(Classification, "training_step", looked)
    assert cli("train", "resume=run", "trainer.max_epochs=3", tiny=False).status == 0
    assert loaded
    assert alive[1] == 0


@pytest.mark.parametrize(
    "name",
    ["..", "../../x", "a/../../x", ".", "a//b", "a\x1b[2Jb", "a\u202eb", "a\nb", "a\u200bb", "\ufeffa", "a\xadb"],
)
def test_a_name_leads_nowhere_else(name):
    with pytest.raises(ConfigError, match="name=") as refused:
        check_name("name", name)
    assert str(refused.value).isprintable()


def test_a_refused_name_leaves_nothing(cli, tmp_path):
    for words in ([], ["-m", "seed=0,1"]):
        refused = cli("train", *words, "name=../../x")
        assert refused.status == 2, refused.err
        assert refuses(refused, "name=../../x is not a valid folder name")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["hydra.run.dir", "hydra.sweep.dir"])
def test_a_folder_has_a_name_that_can_be_read(cli, tmp_path, key):
    words = ["-m", "seed=0,1"] if "sweep" in key else []
    refused = cli("train", *words, f"{key}='runs/a\u202eb'")
    assert refused.status == 2
    assert refuses(refused, f"{key}=")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_else_is_no_place_for_a_run(cli, tmp_path, monkeypatch):
    (tmp_path / "home" / "photos").mkdir(parents=True)
    for command, folder in (("train", "/"), ("train", "home"), ("check", "home"), ("train", ".")):
        refused = cli(command, f"hydra.run.dir={folder}")
        assert refused.status == 2, refused.err
        assert refuses(refused, "is not the folder of a run, but holds ")
    assert [path.name for path in tmp_path.rglob("*")] == ["home", "photos"]
