"""What configs may call, and the table of a sweep."""

import csv
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from vitlab.config import resolvers
from vitlab.config.home import CHECKOUT
from vitlab.config.resolvers import LONGEST_NAME, better, data_folder, folder_name
from vitlab.reports.sweep import write_table

# -- names


@pytest.mark.slow
@settings(deadline=None)
@given(st.text(max_size=300))
def test_a_folder_name_can_be_given_back_to_hydra_and_to_any_file_system(overrides):
    name = folder_name(overrides)
    assert re.fullmatch(r"[A-Za-z0-9._+-]+", name)  # no '=', ',', ' ' or '/'
    assert not name.startswith((".", "-"))
    assert len(name) <= LONGEST_NAME


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ("", "defaults"),
        ("model-vit_ti4_optimizer.lr-1e-3", "model-vit_ti4_optimizer.lr-1e-3"),
        ("data.source.root-/a b/c=d", "data.source.root--a-b-c-d"),
        ("callbacks-[default,ema]", "callbacks--default-ema"),
    ],
)
def test_a_folder_name_stays_legible(overrides, name):
    assert folder_name(overrides) == name


def test_long_names_differ_by_their_hash():
    long = "optimizer.lr-1_" * 20
    names = {folder_name(long + end) for end in ("a", "b", "c")}
    assert len(names) == 3
    assert len({name[: LONGEST_NAME - 9] for name in names}) == 1
    assert folder_name(long) == folder_name(long)


@pytest.mark.parametrize("monitor", ["val/loss", "test/loss", "test/ece", "loss"])
def test_losses_and_errors_are_better_when_they_fall(monitor):
    assert better(monitor) == "min"


@pytest.mark.parametrize("monitor", ["val/acc1", "val/acc5", "loss/acc1", "val/gloss"])
def test_all_else_is_better_when_it_rises(monitor):
    assert better(monitor) == "max"


def test_downloads_go_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("VITLAB_DATA", "/elsewhere")
    assert data_folder("mnist") == "/elsewhere/mnist"
    monkeypatch.delenv("VITLAB_DATA")
    assert data_folder("mnist") == str(CHECKOUT / "data" / "mnist")
    monkeypatch.setattr(resolvers, "ROOT", CHECKOUT / "site-packages" / "vitlab")  # of an installed wheel
    monkeypatch.chdir(tmp_path)
    assert data_folder("mnist") == str(tmp_path / "data" / "mnist")


def test_configs_can_call_them():
    config = OmegaConf.create(
        {
            "resume": None,
            "mode": "${better:val/loss}",
            "n": "${folder_name:'a=b'}",
        }
    )
    assert (config.mode, config.n) == ("min", "a-b")


# -- the table of a sweep


def job(folder, score, monitor="val/acc1", status="done", **overrides):
    outcome = {"folder": folder, "status": status, "monitor": monitor, "seconds": 1.5}
    return {**outcome, "overrides": overrides, "score": score}


@pytest.mark.parametrize(
    ("monitor", "order"),
    [("val/acc1", ["c", "a", "d", "b"]), ("val/loss", ["d", "a", "c", "b"]), ("ece", ["d", "a", "c", "b"])],
)
def test_the_table_has_the_best_job_first_and_failed_ones_last(tmp_path, monitor, order):
    jobs = [
        job("a", 0.5, monitor, lr="1"),
        job("b", None, monitor, "failed: ConfigError: no", lr="2"),
        job("c", 0.75, monitor, lr="3"),
        job("d", -0.25, monitor, lr="4"),
    ]
    rows = write_table(tmp_path, jobs)
    assert [row["folder"] for row in rows] == order
    with open(tmp_path / "results.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["folder"] for row in written] == order
    assert written[0] == {
        monitor: str(rows[0][monitor]),
        "lr": rows[0]["lr"],
        "seconds": "1.5",
        "status": "done",
        "folder": order[0],
    }
    assert written[-1]["status"] == "failed: ConfigError: no"
    assert written[-1][monitor] == ""


def test_a_failed_job_comes_after_one_that_has_no_score(tmp_path):
    jobs = [job("a", None, status="failed: OSError: no"), job("b", None), job("c", 0.5)]
    assert [row["folder"] for row in write_table(tmp_path, jobs)] == ["c", "b", "a"]


def test_jobs_of_different_overrides_share_one_table(tmp_path):
    jobs = [job("a", 0.5, lr="1"), job("b", 0.4, model="x")]
    rows = write_table(tmp_path, jobs)
    assert [(row.get("lr"), row.get("model")) for row in rows] == [("1", None), (None, "x")]
    assert write_table(tmp_path, jobs) == rows  # made anew each time, not added to


def test_a_saved_config_is_read_where_hydra_has_not_started():
    code = """
from vitlab.config.stored_config import parse_saved_config
print(parse_saved_config({"mode": "${better:val/loss}"}, "a checkpoint").mode)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "min\n", done.stderr
