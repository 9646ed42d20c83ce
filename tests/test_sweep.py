"""Multirun: a folder for each job, a table kept current, failures that cost nothing but themselves."""

import csv

import pytest
from conftest import BARE

QUICK = [*BARE, "trainer.max_steps=2", "global_batch_size=128"]


def table(tmp_path, pattern="runs/*/sweep_*"):
    (sweep,) = tmp_path.glob(pattern)
    with open(sweep / "results.csv", newline="") as f:
        return sweep, list(csv.DictReader(f))


def test_a_sweep_ends_in_a_sorted_table_and_a_failed_job_costs_only_itself(cli, tmp_path):
    run = cli("train", "-m", *QUICK, "optimizer.lr=1e-3,1e-5", "model.num_heads=2,5")
    assert run.status != 0  # two of the four jobs were refused
    sweep, rows = table(tmp_path)
    assert [row["status"].split(":")[0] for row in rows] == ["done", "done", "failed", "failed"]
    scores = [float(row["val/acc1"]) for row in rows[:2]]
    assert scores == sorted(scores, reverse=True)
    assert sweep.parent.name.startswith("model-vit_mu4_trainer-cpu")
    assert {float(row["optimizer.lr"]) for row in rows[:2]} == {1e-3, 1e-5}
    assert "num_heads 5" in rows[2]["status"]
    for row in rows:
        assert not set(row["folder"]) & set("=, /")
        assert (sweep / row["folder"] / "job.json").is_file()
    assert (sweep / rows[0]["folder"] / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.ci
@pytest.mark.slow
def test_a_job_that_is_gone_on_with_takes_its_place_in_the_table(cli, tmp_path):
    few = ["trainer.max_steps=2", "trainer.max_epochs=1"]
    run = cli("train", "-m", *QUICK, *few, "seed=0,1", "callbacks=[default],[default,ema]")
    assert run.status == 0, run.err
    for choice in ("[default]", "[default,ema]"):
        assert choice in run.out
    sweep, rows = table(tmp_path)
    (sweep / rows[0]["folder"] / "job.json").unlink()  # as a kill leaves it
    (sweep / "results.csv").unlink()
    more = cli("train", f"resume={sweep / rows[0]['folder']}", "trainer.max_steps=4", tiny=False)
    assert more.status == 0, more.err
    _, again = table(tmp_path)
    assert sorted(row["folder"] for row in again) == sorted(row["folder"] for row in rows)
    assert {row["seed"] for row in again} == {"0", "1"}
    assert all(row["status"] == "done" for row in again)


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


@pytest.mark.ci
@pytest.mark.slow
def test_the_example_study_needs_no_flag(cli, tmp_path):
    run = cli("train", "study=learning_rate", *QUICK, "optimizer.lr=1e-3,1e-4", tiny=True)
    assert run.status == 0, run.err
    _, rows = table(tmp_path, "runs/learning_rate/sweep_*")
    assert len(rows) == 2  # what the command line says wins


def test_resume_in_a_sweep_is_refused(cli, digits_run):
    run = cli("train", "-m", f"resume={digits_run}", "trainer.max_epochs=2,3", tiny=False)
    assert run.status != 0
    assert "without -m" in run.err + run.out


def test_several_devices_in_a_sweep_are_refused(cli):
    run = cli("train", "-m", *QUICK, "trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "seed=0")
    assert run.status != 0
    assert "multirun" in run.err + run.out


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
