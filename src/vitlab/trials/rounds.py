"""Try candidates in short ordinary runs, and the best two in longer ones."""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from io import StringIO
from typing import Any, NamedTuple

from vitlab.commands import program
from vitlab.config.in_process import call_within, format_overrides
from vitlab.errors import DataError, VitlabError
from vitlab.trials.candidates import Candidate
from vitlab.trials.ledger import Ledger
from vitlab.trials.lines import say
from vitlab.trials.outcome import Outcome, choose, read_outcome
from vitlab.trials.plan import LEAST_STEPS, PROBE, Sizes, count_steps, estimate_evaluation, plan_rounds

BARE = [  # what a trial leaves out: the test, pictures
    "trainer.limit_test_batches=0",
    "trainer.check_val_every_n_epoch=1000000",  # once, at the end
    "trainer.log_every_n_steps=5",
    "monitor=val/loss",
    *(f"~callbacks.{name}" for name in ("calibration", "batch_picture", "evaluation_report", "model_views")),
]


class Speed(NamedTuple):
    """Seconds of a step, images in it, and the seconds that a trial takes beside its steps."""

    step: float
    batch_size: int
    start: float = 0.0


Measure = Callable[[Any], tuple[float, int]]  # a training's config -> seconds of a step, and its images


class Rounds:
    """Tries candidates on data of these sizes; `words` are those that all runs share. What has been measured and tried
    is kept in the ledger, and is not done again."""

    def __init__(self, ledger: Ledger, words: Sequence[str], sizes: Sizes, measure: Measure):
        self.ledger = ledger
        self.words = list(words)
        self.sizes = sizes
        self.measure = measure

    def run(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Try as many candidates as the time allows, the first ones first, then the best two for longer; return all
        outcomes, in order. Raises DataError where every trial has failed."""
        start = self.probe(candidates[0]).start
        rounds = self.ledger.find("rounds", lambda: plan_rounds(self.ledger.budget.left, start, len(candidates)))
        count, first, second = rounds
        tried = {one.name: one for one in candidates[:count]}
        say("trials", f"{count} of {len(candidates)} recipes, chosen by validation: {', '.join(tried)}")
        outcomes: list[Outcome] = []
        for one in tried.values():
            speed = self.probe(one)
            seconds = first + start - speed.start
            if outcomes and seconds < LEAST_STEPS * speed.step:
                say("left out", f"{one.name}: too slow for {LEAST_STEPS} steps and a validation in a trial's time")
            else:
                outcomes.append(self.try_one(one, speed, seconds, 1))
        ended = [one for one in outcomes if not one.failed]
        if not ended:
            raise DataError(f"all trials have failed; {outcomes[0].name}: {outcomes[0].failed}")
        if second and len(ended) > 1:
            best, _ = choose(ended, self.sizes.val)
            other, _ = choose([one for one in ended if one is not best], self.sizes.val)
            for shown in (best, other):
                speed = Speed(shown.step_seconds, shown.batch_size, shown.other_seconds)
                outcomes.append(self.try_one(tried[shown.name], speed, second + start - speed.start, 2))
        return outcomes

    def probe(self, candidate: Candidate) -> Speed:
        """Measure the speed of a candidate's steps."""
        known: dict[str, Any] = self.ledger.content.get("speeds", {})
        if candidate.name not in known:
            begun = time.monotonic()
            with redirect_stdout(StringIO()):
                step, batch_size = call_within("train", self.measure, [*self.words, *candidate.words])
            start = max(time.monotonic() - begun - PROBE, 0.1)
            start += self.sizes.val * estimate_evaluation(step, batch_size, self.sizes.reading)
            known = known | {candidate.name: Speed(step, batch_size, start)}
            self.ledger.keep("speeds", known)
        return Speed(*known[candidate.name])

    def try_one(self, candidate: Candidate, speed: Speed, seconds: float, number: int) -> Outcome:
        """Train a candidate for about so many seconds, as an ordinary run without a test."""
        name = f"{candidate.name}_{number}"
        kept: dict[str, Any] = self.ledger.content.get("outcomes", {})
        if name in kept:
            return Outcome(**kept[name])
        folder = self.ledger.folder.absolute() / "trials" / name
        shutil.rmtree(folder, ignore_errors=True)  # of a trial that was killed
        steps = count_steps(seconds, speed.step)
        own = format_overrides({"trainer.max_epochs": -1, "trainer.max_steps": steps, "hydra.run.dir": folder})
        begun = time.monotonic()
        try:
            with redirect_stdout(StringIO()):  # train.log in its folder has it
                call_within("train", partial(program, "train"), [*self.words, *candidate.words, *BARE, *own])
            outcome = read_outcome(candidate.name, folder, steps, speed.batch_size, time.monotonic() - begun)
        except VitlabError as error:
            outcome = Outcome(candidate.name, steps, speed.batch_size, time.monotonic() - begun, failed=str(error))
        told = f"val/acc1 {outcome.accuracy:.2%}, val/loss {outcome.loss:.4f}"
        told = f"failed: {outcome.failed}" if outcome.failed else told
        say("trial", f"{name}: {told}, {steps:,} steps in {outcome.seconds:.0f} s")
        self.ledger.keep("outcomes", kept | {name: asdict(outcome)})
        return outcome
