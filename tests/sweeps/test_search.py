"""Searches: where their jobs are, that a kill changes nothing of it, and that bad ones are ended."""

import json
import random

import pytest
from stub_sweep import frozen

from vitlab.errors import ConfigError
from vitlab.sweeps.folder import Job, State
from vitlab.sweeps.search import RandomSearch
from vitlab.sweeps.space import Axis

AXES = [
    Axis(name="lr", low=1e-4, high=1e-1, log=True),
    Axis(name="depth", low=2, high=9, whole=True),
    Axis(name="norm", choices=["layer", "rms"]),
]
OPTIONS = {"name": "study", "monitor": "val/acc1", "objectives": None, "directions": None, "sampler": "tpe"}
OPTIONS |= {"num_startup_trials": 5, "pruner": "none", "prune_after_trials": 2, "prune_after_steps": 0}


def compose(number, words):
    return Job(number=number, name=f"t{number}", overrides=words, choices={}, monitor="val/acc1", run_id="r"), b""


def searched(sweep, number=20, **changes):
    from vitlab.sweeps.optuna_search import OptunaSearch

    return OptunaSearch(sweep, compose, axes=AXES, num_trials=number, seed=0, **{**OPTIONS, **changes})


def score(job):
    """Best with a learning rate of 0.01 and rms."""
    from math import log10

    return 1 - 0.2 * abs(log10(float(job.values["lr"])) + 2) - 0.1 * (job.values["norm"] == "layer")


def done(sweep, job, **more):
    folder = sweep.path / job.name
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps({"score": score(job), "last": {}, "test": {}, **more}))
    state = State(status="done", score=score(job))
    sweep.write_state(job.name, state)
    return state


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_drawn_lies_on_its_axis_and_reaches_its_ends(whole, log):
    axis = Axis(name="x", low=1, high=8, whole=whole, log=log)
    values = [axis.draw(random.Random(number)) for number in range(2000)]
    assert all(1 <= value <= 8 for value in values)
    assert (min(values) == 1 and max(values) == 8) if whole else (min(values) < 1.1 and max(values) > 7.9)
    share = sum(value < 4.5 for value in values) / len(values)
    assert share == pytest.approx({False: 0.5, True: 0.72}[log], abs=0.06)
    assert {type(value) for value in values} == {int if whole else float}


@pytest.mark.parametrize(("low", "high", "log"), [(2, 1, False), (1, 1, False), (0, 1, True), (0, float("inf"), False)])
def test_an_axis_that_cannot_be_is_refused(low, high, log):
    with pytest.raises(ConfigError, match="x"):
        Axis(name="x", low=low, high=high, log=log)


def test_a_random_job_is_a_function_of_seed_and_number(tmp_path):
    one, other = (frozen(tmp_path / name, []) for name in ("one", "other"))
    whole = RandomSearch(one, compose, axes=AXES, num_trials=9, seed=3)
    jobs = [whole.next() for _ in range(9)]
    assert not whole.has_more
    for number in range(9):  # started anew for each
        assert RandomSearch(other, compose, axes=AXES, num_trials=9, seed=3).next().overrides == jobs[number].overrides
    assert len({tuple(job.overrides) for job in jobs}) == 9
    assert RandomSearch(one, compose, axes=AXES, num_trials=12, seed=3).has_more  # the numbering goes on


def run(sweep, number, anew, **changes):
    """Search one job after the other; `anew`: in another process each."""
    search = searched(sweep, number, **changes)
    for _ in range(number):
        job = search.next()
        if anew:
            search = searched(sweep, number, **changes)
        state = done(sweep, job)
        search.record(job, state)
        if anew:
            search = searched(sweep, number, **changes)
    return [job.overrides for job in sweep.jobs()]


def test_a_search_that_is_killed_after_each_job_suggests_what_it_would_have(tmp_path):
    whole = run(frozen(tmp_path / "whole", []), 14, anew=False)
    assert len({tuple(words) for words in whole}) == 14
    assert run(frozen(tmp_path / "killed", []), 14, anew=True) == whole
    assert run(frozen(tmp_path / "other", []), 14, anew=False, name="another") != whole


def test_it_comes_nearer_to_the_best_than_chance(tmp_path):
    sweep = frozen(tmp_path / "sweep", [])
    run(sweep, 30, anew=False)
    scores = [sweep.state(job.name).score for job in sweep.jobs()]
    early, late = scores[:5], scores[-10:]  # the first are at random
    assert sum(late) / 10 > sum(early) / 5
    assert max(scores) > 0.95


def test_a_trial_that_was_asked_for_and_not_written_down_is_not_lost(tmp_path):
    sweep = frozen(tmp_path / "sweep", [])
    search = searched(sweep)
    words = search.overrides(0)  # and killed before the job is frozen
    journal = sweep.path / "study.journal"
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "wor')  # in the middle of a line
    again = searched(sweep)
    assert again.next().overrides == words
    assert len(again.study.trials) == 1


def test_a_job_that_ended_while_nobody_listened_is_told_to_the_study(tmp_path):
    sweep = frozen(tmp_path / "sweep", [])
    job = searched(sweep).next()
    done(sweep, job)
    (trial,) = searched(sweep).study.trials
    assert trial.value == score(job)


@pytest.mark.parametrize("pruner", ["median", "successive_halving"])
def test_a_bad_job_is_ended_by_what_it_has_measured(tmp_path, pruner):
    sweep = frozen(tmp_path / "sweep", [])
    search = searched(sweep, pruner=pruner, prune_after_steps=10)

    def measured(job, values):
        (sweep.path / job.name).mkdir(exist_ok=True)
        lines = "".join(f"{10 * step + 10},{value}\n" for step, value in enumerate(values))
        (sweep.path / job.name / "metrics.csv").write_text(f"step,val/acc1\n{lines}90,0.")  # of which half is written

    for level in (0.5, 0.6, 0.7, 0.8):
        job = search.next()
        measured(job, [level] * 6)
        assert not search.reason_to_prune(job)
        search.record(job, done(sweep, job))
    good, bad = search.next(), search.next()
    measured(good, [0.9])
    measured(bad, [0.1])
    assert not search.reason_to_prune(good)
    assert search.reason_to_prune(bad)
    state = State(status="pruned")
    sweep.write_state(bad.name, state)
    search.record(bad, state)
    assert search.study.trials[bad.number].state.name == "PRUNED"
    assert searched(sweep, pruner=pruner, prune_after_steps=10).study.trials[bad.number].state.name == "PRUNED"


def test_a_job_whose_training_is_over_is_not_ended(tmp_path):
    sweep = frozen(tmp_path / "sweep", [])
    search = searched(sweep, pruner="median")
    for level, reason_to_prune in ((0.5, False), (0.6, False), (0.1, True), (0.1, False)):
        job = search.next()
        folder = sweep.path / job.name
        folder.mkdir()
        last = 10 if len(sweep.jobs()) == 4 else 20
        (folder / "provenance.json").write_text(json.dumps([{"to_step": last}]))
        (folder / "metrics.csv").write_text(f"step,val/acc1\n10,{level}\n")
        assert bool(search.reason_to_prune(job)) is reason_to_prune
        search.record(job, done(sweep, job))


def test_a_search_ends_whose_first_jobs_are_all_refused(tmp_path, capsys):
    search = RandomSearch(frozen(tmp_path / "sweep", []), compose, axes=AXES, num_trials=9, seed=3)
    for number in range(3):
        assert search.has_more
        search.record(search.next(), State(status="failed", exit_status=2, failures=number))
    assert not search.has_more
    search.report([])
    assert "all 3 new jobs were refused" in capsys.readouterr().out
    search.record(search.sweep.jobs()[0], State(status="done"))  # what was refused may be right at its second try
    assert search.has_more
    again = RandomSearch(search.sweep, compose, axes=AXES, num_trials=9, seed=3)
    for job in again.sweep.jobs():
        again.record(job, State(status="failed", exit_status=2))
    assert again.has_more  # the same typed again tries others


def test_several_objectives_have_a_front(tmp_path):
    sweep = frozen(tmp_path / "sweep", [])
    search = searched(sweep, objectives=["val/acc1", "seconds"], directions=["maximize", "minimize"])
    for seconds in (3, 1, 2):
        job = search.next()
        search.record(job, done(sweep, job, seconds=seconds))
    assert {trial.number for trial in search.study.best_trials} >= {1}
    job = search.next()
    (sweep.path / job.name).mkdir()
    (sweep.path / job.name / "result.json").write_text('{"score": 1.0, "images_per_second": 3}')
    with pytest.raises(ConfigError, match="no seconds; it is one of"):
        search.record(job, State(status="done"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sampler": "grid"}, "sampler grid is not one of: tpe, random"),
        ({"pruner": "mean"}, "pruner mean is not one of"),
        ({"directions": ["up"]}, "directions up is not one of"),
        ({"directions": ["maximize", "maximize"]}, r"one direction for each of the objectives \[val/acc1\], but has 2"),
        ({"objectives": ["val/acc1", "seconds"], "pruner": "median"}, "objectives to null"),
    ],
)
def test_a_search_that_cannot_be_is_refused(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=said):
        searched(frozen(tmp_path / "sweep", []), **changes)
