"""The wheel by itself: in an environment without the checkout, from an empty folder."""

import re
import shlex
import subprocess

import pytest
from conftest import BARE, TINY
from installed import install_wheel

from vitlab.config.home import ROOT

RUN = shlex.join([*TINY, *BARE, "trainer.max_epochs=1", "data.split.labels_per_class=26"])
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """shell("vitlab train …") -> what it prints, with nothing of vitlab but its wheel, in a folder that was empty."""
    environment, empty = install_wheel(tmp_path_factory.mktemp("wheel")), tmp_path_factory.mktemp("empty")

    def run(line, status=0):
        done = subprocess.run(shlex.split(line), cwd=empty, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.ci
def test_a_run_from_beginning_to_end(shell):
    """Each command as the one before it prints it."""
    assert str(ROOT) not in shell("python -c 'import vitlab; print(vitlab.__file__)'")
    told = shell(f"vitlab train {RUN}")
    (evaluate,) = re.findall(r"^evaluate +(vitlab evaluate .*)$", told, re.M)
    metrics = re.findall(r"(test/\w+) +│ +(\S+)", told)
    assert metrics
    assert metrics == re.findall(r"(test/\w+) +│ +(\S+)", shell(evaluate))
    (go_on,) = re.findall(r"^go on +(vitlab train resume=.*)$", told, re.M)
    assert " of them in this start, best at step " in shell(go_on)


def test_recipes_and_studies_are_in_it(shell):
    assert "num_heads: 3" in shell("vitlab train recipe=digits model.num_heads=3 --cfg job")
    assert "there is no study=positoin; did you mean position?" in shell("vitlab train study=positoin", status=2)


def test_the_jobs_of_a_sweep_are_started_by_it(shell):
    shell(f"vitlab train -m {RUN} seed=0,1 sweep=seeds")
    assert "seeds: 2 done" in shell("vitlab sweeps")


def test_the_second_process_of_a_run_is_started_by_it(shell):
    words = RUN.replace("trainer=cpu", "trainer=ddp trainer.accelerator=cpu trainer.devices=2")
    assert "device   2 x cpu" in shell(f"python -m vitlab train {words}")
