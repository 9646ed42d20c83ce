"""Trials of candidates whose speeds differ, with stand-ins for the trainings."""

import json
from pathlib import Path

import pytest

from vitlab.trials import rounds
from vitlab.trials.budget import Budget
from vitlab.trials.candidates import Candidate
from vitlab.trials.ledger import Ledger
from vitlab.trials.plan import LEAST_STEPS, Sizes
from vitlab.trials.rounds import Rounds


@pytest.fixture
def run_trials(tmp_path, monkeypatch):
    """run_trials(minutes, **seconds of a step by name): the outcomes; trials with more steps are more accurate."""

    def run(minutes, **steps):
        def measure(cfg):
            raise AssertionError

        def call_within(command, function, words):
            (name,) = [word.removeprefix("name=") for word in words if word.startswith("name=")]
            if function is measure:
                return steps[name], 100
            given = dict(word.split("=", 1) for word in words if "=" in word)
            folder = Path(given["hydra.run.dir"].strip("'\""))
            folder.mkdir(parents=True)
            last = {"val/acc1": min(0.9, int(given["trainer.max_steps"]) / 10_000), "val/loss": 1.0}
            result = {"score": 1.0, "test": {}, "last": last, "images_per_second": 100 / steps[name], "seconds": 1.0}
            (folder / "result.json").write_text(json.dumps(result))
            return None

        monkeypatch.setattr(rounds, "call_within", call_within)
        monkeypatch.setattr(rounds, "PROBE", 0.0)
        candidates = [Candidate(name, None, (f"name={name}",)) for name in steps]
        ledger = Ledger(tmp_path, Budget(minutes))
        sizes = Sizes(train=1000, val=100, test=100, reading=0.0)
        return Rounds(ledger, [], sizes, measure).run(candidates)

    return run


def test_a_candidate_that_is_too_slow_for_its_share_is_left_out(run_trials, capsys):
    outcomes = run_trials(5, fast=0.05, slow=20.0, middle=0.1)
    assert [one.name for one in outcomes] == ["fast", "middle", "fast", "middle"]
    assert all(one.steps > LEAST_STEPS for one in outcomes)
    assert "left out" in capsys.readouterr().out


def test_the_first_one_is_tried_however_slow_it_is(run_trials):
    (only,) = run_trials(1, slow=20.0)
    assert only.steps == LEAST_STEPS


def test_a_slower_one_gets_fewer_steps_in_the_same_time(run_trials):
    fast, slow = run_trials(5, fast=0.05, slow=0.5)[:2]
    assert 8 * slow.steps < fast.steps < 12 * slow.steps
