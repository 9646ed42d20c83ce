"""Multirun: a folder for each job, a table kept current, failures that cost nothing but themselves."""

import csv
import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import BARE, SRC, TINY, chosen
from reading import WRITER

from vitlab.checkpoints import file
from vitlab.config.resolvers import sweep_folder
from vitlab.sweeps.folder import Job, SweepFolder

QUICK = [*BARE, "trainer.max_steps=2", "global_batch_size=128"]


def table(tmp_path, pattern="runs/*/sweep_*"):
    (sweep,) = tmp_path.glob(pattern)
    with open(sweep / "results.csv", newline="") as f:
        return sweep, list(csv.DictReader(f))


@pytest.mark.ci
@pytest.mark.slow
def test_a_sweep_ends_in_a_sorted_table_and_a_failed_job_costs_only_itself(cli, tmp_path):
    words = ["-m", *QUICK, "sweep=heads", "engine.slots=2"]
    run = cli("train", *words, "model.num_heads=1,5,2")
    assert run.status == 2  # one of the three jobs was refused
    assert "1 of 3 jobs" in run.err
    assert "num_heads 5" in run.err
    sweep, rows = table(tmp_path, "runs/heads")
    assert [row["status"].split(":")[0] for row in rows] == ["done", "done", "failed"]
    scores = [float(row["val/acc1"]) for row in rows[:2]]
    assert scores == sorted(scores, reverse=True)
    assert {row["folder"] for row in rows} == {f"model.num_heads-{heads}" for heads in (1, 2, 5)}
    assert {row["model.num_heads"] for row in rows[:2]} == {"1", "2"}
    assert "num_heads 5" in rows[2]["status"]
    assert (sweep / rows[0]["folder"] / "checkpoints" / "best.ckpt").is_file()
    assert [SweepFolder(sweep).state(row["folder"]).attempts for row in rows] == [1, 1, 2]

    other = cli("train", *words, "model.num_heads=2,4", "trainer.max_steps=3")
    assert other.status == 2
    for said in ("trainer.max_steps was 2 and is 3 now", "model.num_heads=1", "model.num_heads=4", "sweep=NAME"):
        assert said in other.err
    assert table(tmp_path, "runs/heads")[1] == rows


def test_a_sweep_without_a_name_goes_to_a_folder_of_its_own_each_time(cli, tmp_path):
    for _ in range(2):
        assert cli("train", "-m", *QUICK, "seed=0,1", "engine=local", "global_batch_size=-1").status == 2
    assert not list(tmp_path.glob("runs/*/*"))
    assert sweep_folder(None, None, "now").endswith("/sweep_now")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "sweep=a/b", "seed=0,1"], "is not a valid folder name"),
        (["-m", "sweep=..", "seed=0,1"], "is not a valid folder name"),
        (["sweep=a"], "add -m"),
        (["-m", "engine.slots=0", "seed=0,1"], "slots 0 is not a whole number of at least 1"),
        (["-m", "engine.threads=0", "seed=0,1"], "threads 0 is not a whole number of at least 1"),
        (["-m", "engine=submitit", "engine.slots=0", "seed=0,1"], "slots 0 is not a whole number of at least 1"),
        (["-m", "engine=submitit", "engine.cluster=pbs", "seed=0,1"], "cluster pbs is not"),
        (["-m", "engine.gpus_per_slot=-1", "seed=0,1"], "gpus_per_slot -1 is not a whole number of at least 0"),
        (["-m", "engine=locl", "seed=0,1"], "did you mean local"),
        (["-m", "engine.slts=2", "seed=0,1"], "did you mean engine.slots"),
        (["-m", "optimizer.lr=interval(1e-4,1e-2)"], "vitlab_random"),
        (["-m", "optimizer.lrr=1,2"], "did you mean optimizer.lr"),
        (["-m", "+optimizer.lrr=1,2"], "did you mean optimizer.lr"),
        (["-m", "+nobody=1,2"], "nobody"),
        (["-m", "hydra/launcher=other", "seed=0,1"], "hydra/launcher=other"),
        (["-m", "hydra/sweeper=basic", "seed=0,1"], "vitlab_grid"),
        (["-m", "hydra.sweeper=3", "seed=0,1"], "hydra/sweeper=NAME"),
        (["-m", "hydra.sweeper.params={seed:1}"], "KEY=A,B"),
        (["-m", "hydra.sweeper.params.optimizer.lr=1"], "KEY=A,B"),
        (["-m", "seed=1,1"], "gives 1 twice"),
        (["-m", "optimizer.lr=1e-3,0.001"], "gives 0.001 twice"),
        (["-m", "sweep=a", "seed=range(5,1)"], "seed=range(5,1) gives no value"),
        (["-m", "sweep=a", "model=glob(zzz*)"], "model=glob(zzz*) gives no value"),
        (["-m", "sweep=a", "seed=range(0,3,0)"], "seed=range(0,3,0): "),
        (["-m", "sweep=a,b", "seed=0,1"], "one sweep"),
        (["-m", "sweep=a", "trainer.precision=32-true,bf17"], "trainer.precision=bf17 is not a precision"),
        (["-m", "engine.slots=1,2", "seed=0,1"], "one engine.slots"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_in_a_sentence(cli, tmp_path, words, said):
    run = cli("train", *words)
    assert run.status == 2
    assert said in run.err
    assert run.err.strip().count("\n") == 0
    assert not list(tmp_path.glob("runs/*/*"))


def test_a_name_alone_goes_on_with_a_sweep_that_is_there(cli, tmp_path):
    run = cli("train", "-m", "sweep=a", tiny=False)
    assert run.status == 2
    assert "there is no sweep" in run.err
    assert not list(tmp_path.glob("runs/*"))


def test_a_sweep_of_another_version_is_refused(cli, tmp_path):
    for folder, name, content in (("old", "multirun.yaml", "{}"), ("new", "sweep.json", '{"format": 99}')):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        (tmp_path / "runs" / folder / name).write_text(content)
        run = cli("train", "-m", f"sweep={folder}", "seed=0,1")
        assert run.status == 4
        assert "version" in run.err


@pytest.mark.parametrize("name", ["note", "jobs/foo/note", "jobs/note", "2026/config.yaml"])
def test_a_folder_that_is_no_sweep_is_left_alone(cli, tmp_path, name):
    (file := tmp_path / "runs" / "a" / name).parent.mkdir(parents=True)
    file.touch()
    run = cli("train", "-m", "sweep=a", "seed=0,1")
    assert run.status == 4
    assert "runs/a is not a sweep" in run.err
    assert file.is_file()


def test_what_a_killed_start_leaves_is_replaced(tmp_path):
    sweep = SweepFolder(tmp_path)
    for name in (
        "jobs/a/job.json",
        "jobs/a/.config.yaml.1.tmp",
        "study.journal",
        "fork_server.log",
        ".lock",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    sweep.check_new()
    sweep.clear()
    assert {path.name for path in tmp_path.iterdir()} == {"fork_server.log", ".lock"}


def test_a_full_disk_is_told_before_the_first_job(cli, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("vitlab.sweeps.folder.write_whole", full)
    run = cli("train", "-m", *QUICK, "sweep=a", "seed=0,1")
    assert run.status == 6
    assert "No space left" in run.err
    assert not (tmp_path / "runs" / "a" / "seed-0").exists()


@pytest.mark.slow
def test_a_job_that_is_gone_on_with_takes_its_place_in_the_table(cli, tmp_path):
    few = ["trainer.max_steps=2", "trainer.max_epochs=1"]
    run = cli("train", "-m", *QUICK, *few, "seed=0,1", "callbacks=[default],[default,ema]")
    assert run.status == 0, run.err
    for choice in ("[default]", "[default,ema]"):
        assert choice in run.out
    sweep, rows = table(tmp_path)
    start = json.loads((sweep / rows[0]["folder"] / "provenance.json").read_text())[0]
    assert f"seed={rows[0]['seed']}" in start["command"]
    assert "resume=" not in start["command"], start
    (sweep / "results.csv").unlink()
    more = cli("train", f"resume={sweep / rows[0]['folder']}", "trainer.max_steps=4", tiny=False)
    assert more.status == 0, more.err
    _, again = table(tmp_path)
    assert sorted(row["folder"] for row in again) == sorted(row["folder"] for row in rows)
    assert {row["seed"] for row in again} == {"0", "1"}
    assert all(row["status"] == "done" for row in again)
    job = sweep / rows[1]["folder"]
    weights = file.read(job / "checkpoints" / "latest.ckpt")["state_dict"]
    shutil.rmtree(job)
    assert cli("train", f"resume={job}", tiny=False).status == 0  # one that was not begun begins, as it was frozen
    assert all(
        torch.equal(file.read(job / "checkpoints" / "latest.ckpt")["state_dict"][k], weights[k]) for k in weights
    )


@pytest.mark.slow
def test_a_job_that_is_gone_on_with_keeps_the_metric_of_its_sweep(cli, tmp_path):
    few = ["trainer.max_steps=2", "trainer.max_epochs=1", "monitor=val/loss"]
    assert cli("train", "-m", *QUICK, *few, "seed=0,1").status == 0
    sweep, rows = table(tmp_path)
    assert cli("train", f"resume={sweep / rows[0]['folder']}", "trainer.max_steps=3", tiny=False).status == 0
    _, again = table(tmp_path)
    losses = [float(row["val/loss"]) for row in again]
    assert losses == sorted(losses)
    assert len(again) == 2


@pytest.mark.slow
def test_the_example_study_needs_no_flag(cli, tmp_path):
    run = cli("train", "study=learning_rate", *QUICK, "optimizer.lr=1e-3,1e-4", tiny=True)
    assert run.status == 0, run.err
    _, rows = table(tmp_path, "runs/learning_rate_*")
    assert len(rows) == 2  # what the command line says wins


@pytest.mark.ci
@pytest.mark.slow
def test_jobs_find_what_the_sweep_leaves_open(cli):
    words = [*WRITER, *BARE, "trainer.max_steps=2", "data.source.num_numbers=400", "seed=0,1", "sweep=found"]
    run = cli("train", "-m", *words, "engine.slots=1", tiny=False)
    assert run.status == 0, run.err
    (result,) = Path("runs/found").rglob("seed-1/result.json")
    assert json.loads(result.read_text())["steps"] == 2


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"choices": {}, "run_id": "a"}'])
def test_a_damaged_job_is_not_gone_on_with(cli, tmp_path, content):
    (home := tmp_path / "runs" / "a" / "jobs" / "job").mkdir(parents=True)
    (home / "job.json").write_text(content)
    run = cli("train", "resume=runs/a/job", tiny=False)
    assert run.status == 4
    assert "the config of the sweep's job in" in run.err


@pytest.mark.parametrize("content", ["", "5", "[1]", "a: [", "a: 1", "\0"])
def test_a_damaged_config_of_a_job_is_not_gone_on_with(cli, tmp_path, content):
    (home := tmp_path / "runs" / "a" / "jobs" / "job").mkdir(parents=True)
    (home / "job.json").write_text('{"choices": {}, "run_id": "a"}')
    (home / "config.yaml").write_text(content)
    run = cli("train", "resume=runs/a/job", tiny=False)
    assert run.status == 4
    assert "the config of the sweep's job in" in run.err


def test_jobs_are_frozen_without_torch(tmp_path):
    """It costs a second, and the sweeper would hold it in memory for as long as its jobs run."""
    words = [str(SRC / "train.py"), *SEARCH, "hydra/sweeper=vitlab_random", f"hydra.sweep.dir={tmp_path / 'a'}"]
    code = f"import runpy, sys; sys.argv = {words}\n"
    code += "import vitlab.sweeps.start\nvitlab.sweeps.start.run_jobs = lambda *arguments: None\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a" / "sweep.json").is_file()


def test_resume_in_a_sweep_is_refused(cli, digits_run):
    run = cli("train", "-m", f"resume={digits_run}", "trainer.max_epochs=2,3", tiny=False)
    assert run.status != 0
    assert "leave out -m" in run.err + run.out


@pytest.mark.slow
def test_jobs_of_several_processes_have_each_their_own(cli, tmp_path):
    two = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2"]
    run = cli("train", "-m", *QUICK, *two, "sweep=two", "seed=0,1", "engine.slots=2")
    assert run.status == 0, run.err
    sweep, rows = table(tmp_path, "runs/two")
    assert [row["status"] for row in rows] == ["done", "done"]
    for row in rows:
        assert "2 x cpu" in (sweep / "jobs" / row["folder"] / "console.log").read_text()


@pytest.mark.slow
def test_each_job_of_a_sweep_is_a_wandb_run_of_its_own(cli, tmp_path):
    run = cli("train", "-m", *QUICK, "seed=0,1", "logger=wandb")
    assert run.status == 0, run.err
    runs = list(tmp_path.glob("runs/*/sweep_*/*/wandb/offline-run-*"))
    assert len(runs) == 2
    assert len({path.parents[1] for path in runs}) == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_flag_may_stand_anywhere(cli, place):
    """Before, between and behind the overrides, as a user types it."""
    words = ["trainer.max_epochs=3", "seed=5"]
    words[place:place] = ["--cfg", "job"]
    shown = cli("train", *words)
    assert shown.status == 0, shown.err
    assert "seed: 5" in shown.out
    assert "max_epochs: 3" in shown.out


@pytest.mark.slow
def test_two_sweeps_at_once_do_not_disturb_each_other(tmp_path):
    command = [sys.executable, str(SRC / "train.py"), "-m", *chosen(*TINY, *QUICK, "seed=0,1,2", "engine.slots=2")]
    sweeps = [subprocess.Popen([*command, f"sweep={name}"], cwd=tmp_path) for name in ("one", "other")]
    assert [sweep.wait(280) for sweep in sweeps] == [0, 0]
    one, other = ([{**row, "seconds": ""} for row in table(tmp_path, f"runs/{name}")[1]] for name in ("one", "other"))
    assert one == other
    assert len(one) == 3


# -- searches


@pytest.fixture
def not_begun(monkeypatch):
    """A start ends once its sweep is whole."""
    monkeypatch.setattr("vitlab.sweeps.start.run_jobs", lambda *arguments: None)


SEARCH = ["-m", "sweep=a", "engine.preload=false", "optimizer.lr=interval(1e-4,1e-2)"]
OPTUNA = [*SEARCH, "hydra/sweeper=vitlab_optuna"]
TWO = ["hydra.sweeper.objectives=[val/acc1,images_per_second]", "hydra.sweeper.directions=[maximize,maximize]"]


def asked(tmp_path):
    return json.loads((tmp_path / "runs" / "a" / "sweep.json").read_text())["search"]


def test_a_search_has_several_objectives(cli, tmp_path, not_begun):
    for _ in range(2):
        run = cli("train", *OPTUNA, *TWO)
        assert run.status == 0, run.err
    assert asked(tmp_path)["objectives"] == ["val/acc1", "images_per_second"]


def test_what_a_start_has_left_that_froze_nothing_is_not_taken_over(cli, tmp_path, not_begun):
    assert cli("train", *OPTUNA, *TWO).status == 0
    (tmp_path / "runs" / "a" / "sweep.json").unlink()
    assert cli("train", *OPTUNA).status == 0
    assert '"directions":[2]' in (tmp_path / "runs" / "a" / "study.journal").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "axis"),
    [
        ("model.depth=interval(1,4)", {"low": 1, "high": 4, "whole": True}),
        ("model.depth=tag(float,interval(1,4))", {"low": 1, "high": 4, "whole": False}),
        ("optimizer.lr=interval(1,4)", {"low": 1, "high": 4, "whole": False}),
        ("optimizer.lr=int(interval(1,4))", {"low": 1, "high": 4, "whole": True}),
        ("seed=range(1,5)", {"low": 1, "high": 4, "whole": True}),
        ("seed=range(1,2)", {"choices": ["1"]}),
    ],
)
def test_a_search_knows_whole_numbers(cli, tmp_path, not_begun, words, axis):
    run = cli("train", *SEARCH, "hydra/sweeper=vitlab_random", words)
    assert run.status == 0, run.err
    found = asked(tmp_path)["axes"][-1]
    assert axis.items() <= found.items()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("model.depth=interval(0,0.5)", "model.depth is an integer in the config"),
        ("model=interval(1,3)", "whose options have names"),
        ("seed=range(3,1)", "gives no value"),
        ("seed=1,1", "gives 1 twice"),
        ("optimizer.lr=interval(0,inf)", "not finite"),
        ("optimizer.lr=interval(0,nan)", "not finite"),
        ("hydra.sweeper.num_trials=0", "num_trials 0 is not at least 1"),
        ("hydra.sweeper.num_startup_trials=-1", "num_startup_trials -1 is not at least 0"),
        ("hydra.sweeper.prune_after_trials=-1", "prune_after_trials -1 is not at least 0"),
        ("hydra.sweeper.prune_after_steps=-5", "prune_after_steps -5 is not at least 0"),
        ("hydra.sweeper.objectives=val/acc1", "write hydra.sweeper.objectives=[NAME]"),
    ],
)
def test_a_search_is_refused_in_a_sentence(cli, tmp_path, words, said):
    run = cli("train", *OPTUNA, words)
    assert run.status == 2
    assert said in run.err
    assert run.err.strip().count("\n") == 0
    assert "Error in" not in run.err
    assert not list(tmp_path.glob("runs/a"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "belongs to another search"),
        (b"garbage\n", "study.journal is damaged in line 1"),
        (b"[]\n", "study.journal is damaged in line 1"),
    ],
)
def test_a_study_that_was_lost_is_named(cli, tmp_path, not_begun, content, said):
    assert cli("train", *OPTUNA).status == 0
    sweep = SweepFolder(tmp_path / "runs" / "a")
    sweep.add(Job(number=0, name="0", overrides=[], choices={}, monitor="val/acc1", run_id="r"), b"")
    (sweep.path / "study.journal").unlink() if content is None else (sweep.path / "study.journal").write_bytes(content)
    run = cli("train", *OPTUNA)
    assert run.status == 4
    assert said in run.err


@pytest.mark.slow
def test_a_random_search_is_refused_before_its_first_job(cli, tmp_path):
    random = ["-m", "hydra/sweeper=vitlab_random", "sweep=a"]
    for words, said in (
        ([*random, "seed=1"], "something to vary"),
        ([*random, "optimizer.lr=interval(1,0)"], "not an interval"),
        ([*random, "optimizer.lr=interval(1e-4,1e-2)", "hydra.sweeper.num_trials=0"], "num_trials 0 is not at least 1"),
        ([*random, "optimizer.lr=interval(1e-4,1e-2)", "+optimizer.lrr=1,2"], "did you mean optimizer.lr"),
        ([*random, "optimizer.lrr=interval(1e-4,1e-2)"], "did you mean optimizer.lr"),
    ):
        run = cli("train", *words)
        assert run.status == 2
        assert said in run.err
        assert not list(tmp_path.glob("runs/*/*"))


@pytest.mark.parametrize("package", ["submitit", "ray"])
def test_an_engine_without_its_package_says_what_is_missing(cli, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    run = cli("train", "-m", f"engine={package}", "seed=0,1")
    assert run.status == 2
    assert f"pip install {package}" in run.err
    assert not list(tmp_path.glob("runs/*/*"))


def test_a_search_without_optuna_says_what_is_missing(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    run = cli("train", "-m", "hydra/sweeper=vitlab_optuna", "optimizer.lr=interval(1e-4,1e-2)")
    assert run.status == 2
    assert "pip install optuna" in run.err
    assert not list(tmp_path.glob("runs/*/*"))


@pytest.mark.slow
def test_a_search_goes_on_with_more_trials(cli, tmp_path):
    words = ["-m", *QUICK, "sweep=a", "hydra/sweeper=vitlab_optuna", "engine.slots=2", "model.pool=cls,mean"]
    words += ["optimizer.lr=tag(log,interval(1e-4,1e-2))", "hydra.sweeper.pruner=median"]
    assert cli("train", *words, "hydra.sweeper.num_trials=3").status == 0
    sweep, rows = table(tmp_path, "runs/a")
    assert len(rows) == 3
    again = cli("train", *words, "hydra.sweeper.num_trials=5")
    assert again.status == 0, again.err
    _, more = table(tmp_path, "runs/a")
    assert sorted(row["folder"][0] for row in more) == list("01234")
    assert all(row in more for row in rows)
    assert {path.name for path in sweep.glob("*.png")} == {"importance.png", "parallel.png"}
    other = cli("train", *words, "hydra.sweeper.num_trials=6", "hydra.sweeper.sampler=random")
    assert other.status == 2
    assert 'search.sampler was "tpe" and is "random" now' in other.err
