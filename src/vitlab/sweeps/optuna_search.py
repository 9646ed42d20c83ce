"""Search by Optuna: each job is placed where earlier ones make a good result likely, and bad ones end early.

Akiba et al., 2019, arXiv:1907.10902. The study is a journal in the sweep's folder, which the sweeper alone writes.
"""

import hashlib
import json
import math
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_whole
from vitlab.errors import CheckpointError, ConfigError
from vitlab.monitors import better
from vitlab.reports.run import history, last_step, result_of
from vitlab.reports.search import draw
from vitlab.spelling import instead_of
from vitlab.sweeps.folder import JOURNAL, Job, State, SweepFolder
from vitlab.sweeps.search import Compose, RandomSearch
from vitlab.sweeps.space import Axis

STUDY = "sweep"
REASONS = {"median": "worse than the median", "successive_halving": "not among the best at this step"}


class OptunaSearch(RandomSearch):
    """Asks a study for the next job, and tells it what jobs come to. A job's number is its trial's.

    `objectives` are figures of a run's result, and `directions` minimize or maximize; null is the monitor, as it is
    better. `sampler` is tpe (Watanabe, 2023, arXiv:2304.11127) or random, and is seeded anew by `name`, `seed`, trial
    and key, so that a search that is gone on with suggests what it would have. `pruner` is none, median or
    successive_halving (Li et al., 2018, arXiv:1810.05934), by the values of the monitor in metrics.csv: the median not
    before `prune_after_trials` trials have ended, both not before `prune_after_steps` optimizer steps of one.
    """

    def __init__(
        self,
        sweep: SweepFolder,
        compose: Compose,
        *,
        axes: list[Axis],
        num_trials: int,
        seed: int,
        name: str,
        monitor: str,
        objectives: list[str] | None,
        directions: list[str] | None,
        sampler: str,
        num_startup_trials: int,
        pruner: str,
        prune_after_trials: int,
        prune_after_steps: int,
    ):
        super().__init__(sweep, compose, axes=axes, num_trials=num_trials, seed=seed)
        self.name = name
        self.monitor = monitor
        for key, value in (("objectives", objectives), ("directions", directions)):
            if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
                raise ConfigError(f"hydra.sweeper.{key} {value} is no list of names; write hydra.sweeper.{key}=[NAME]")
        steps = {"prune_after_trials": prune_after_trials, "prune_after_steps": prune_after_steps}
        for key, number in {"num_startup_trials": num_startup_trials, **steps}.items():
            if number < 0:
                raise ConfigError(f"hydra.sweeper.{key} {number} is not at least 0")
        self.objectives = objectives or [monitor]
        self.directions = directions or [f"{better(one)}imize" for one in self.objectives]
        check_one_of("sampler", sampler, ("tpe", "random"))
        check_one_of("pruner", pruner, ("none", "median", "successive_halving"))
        for direction in self.directions:
            check_one_of("directions", direction, ("minimize", "maximize"))
        if len(self.directions) != len(self.objectives):
            raise ConfigError(
                f"hydra.sweeper.directions is to hold one for each of the objectives [{','.join(self.objectives)}], "
                f"and holds {len(self.directions)}"
            )
        if pruner != "none" and self.objectives != [monitor]:
            raise ConfigError(
                f"hydra.sweeper.pruner={pruner} ends runs by the monitor alone: set it to none, or objectives to null"
            )
        self.sampler, self.num_startup_trials = sampler, num_startup_trials
        self.pruner = pruner
        self.study = self._opened(prune_after_trials, prune_after_steps)
        known = [one.name.lower() for one in self.study.directions]
        if known != self.directions or len(self.study.get_trials(deepcopy=False)) < self.number:
            raise CheckpointError(
                f"{sweep.path / JOURNAL} is not what this search has written: put that back, or give another sweep=NAME"
            )
        for job in sweep.jobs():
            self.note(job, sweep.state(job.name))

    def words(self, number: int) -> list[str]:
        """Ask for a place; after a kill in the middle of an answer, for the rest of it."""
        import optuna

        trials = self.study.get_trials(deepcopy=False)
        if number == len(trials):
            self.study.ask()
            trials = self.study.get_trials(deepcopy=False)
        trial = optuna.trial.Trial(self.study, trials[number]._trial_id)
        return [axis.word(self._suggested(trial, axis)) for axis in self.axes]

    def note(self, job: Job, state: State) -> None:
        """Tell the study of a job that has ended well, or was pruned."""
        from optuna.trial import TrialState

        super().note(job, state)
        if state.status not in ("done", "pruned") or self._trial(job).state.is_finished():
            return
        self._report(job)
        if state.status == "pruned":
            self.study.tell(job.number, state=TrialState.PRUNED)
            return
        values = [self._value(job, objective) for objective in self.objectives]
        if all(map(math.isfinite, values)):
            self.study.tell(job.number, values)
        else:
            self.study.tell(job.number, state=TrialState.FAIL)

    def superfluous(self, job: Job) -> str | None:
        """Say why to prune a job, by what it has measured since the last time; None where it is to go on."""
        return REASONS[self.pruner] if self.pruner != "none" and self._report(job, prune=True) else None

    def conclude(self, outcomes: list[dict[str, Any]]) -> None:
        """Print the jobs that no other beats in all objectives, and draw what matters."""
        super().conclude(outcomes)
        if len(self.objectives) > 1:
            names = {job.number: job.name for job in self.sweep.jobs()}
            print("\njobs than which no other is better in every objective:")
            for trial in self.study.best_trials:
                values = zip(self.objectives, trial.values, strict=True)
                print(f"{names[trial.number]}: {', '.join(f'{name} {value:.4g}' for name, value in values)}")
        with suppress(ConfigError):  # too few jobs to draw anything
            print(f"\npictures: {', '.join(map(str, draw(self.sweep.path, outcomes, self.sweep.scales())))}")

    def _opened(self, after_trials: int, after_steps: int) -> Any:
        try:
            import optuna
        except ModuleNotFoundError as error:
            raise ConfigError("hydra/sweeper=vitlab_optuna needs the package optuna: pip install optuna") from error
        from optuna import pruners
        from optuna.storages.journal import JournalFileBackend, JournalStorage
        from optuna.study import StudyDirection

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        path = self.sweep.path / JOURNAL
        mend(path)
        return optuna.create_study(
            study_name=STUDY,
            storage=JournalStorage(JournalFileBackend(str(path))),
            directions=[StudyDirection[one.upper()] for one in self.directions],
            load_if_exists=True,
            pruner={
                "none": pruners.NopPruner,
                "median": lambda: pruners.MedianPruner(after_trials, after_steps),
                "successive_halving": lambda: pruners.SuccessiveHalvingPruner(after_steps or "auto"),
            }[self.pruner](),
        )

    def _suggested(self, trial: Any, axis: Axis) -> Any:
        from optuna import samplers

        key = f"{self.name}/{self.seed}/{trial.number}/{axis.name}"
        seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest())
        if self.sampler == "random":
            self.study.sampler = samplers.RandomSampler(seed=seed)
        else:
            startup = self.num_startup_trials
            self.study.sampler = samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
        if axis.choices is not None:
            return trial.suggest_categorical(axis.name, axis.choices)
        if axis.whole:
            return trial.suggest_int(axis.name, int(axis.low), int(axis.high), log=axis.log)
        return trial.suggest_float(axis.name, axis.low, axis.high, log=axis.log)

    def _trial(self, job: Job) -> Any:
        return self.study.get_trials(deepcopy=False)[job.number]

    def _report(self, job: Job, *, prune: bool = False) -> bool:
        """Tell the study what a run has newly measured; return whether to prune it."""
        import optuna

        if self.pruner == "none":
            return False
        frozen, folder = self._trial(job), self.sweep.path / job.name
        measured = [one for one in history(folder, self.monitor) if one[0] not in frozen.intermediate_values]
        for step, value in measured:
            trial = optuna.trial.Trial(self.study, frozen._trial_id)
            trial.report(value, step)
            if prune and trial.should_prune() and measured[-1][0] < last_step(folder):
                return True
        return False

    def _value(self, job: Job, objective: str) -> float:
        """Read an objective of a finished run. Raises ConfigError for one that it lacks."""
        result = result_of(self.sweep.path / job.name) or {}
        figures = {**result, **result.get("last", {}), **result.get("test", {}), self.monitor: result.get("score")}
        known = [name for name, value in figures.items() if isinstance(value, int | float)]
        if objective not in known and objective != self.monitor:
            raise ConfigError(f"hydra.sweeper.objectives: a run has no {objective}{instead_of(objective, known)}")
        value = figures[objective]
        return math.nan if value is None else float(value)


def check_one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"hydra.sweeper.{key} {value} is not one of: {', '.join(known)}")


def mend(journal: Path) -> None:
    """Cut off a line that a kill left half written, and remove the lock it left: only one process writes to this
    journal. Raises CheckpointError for a line that nobody has written so."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    content = journal.read_bytes() if journal.is_file() else b""
    *lines, rest = content.split(b"\n")
    if rest:
        write_whole(journal, content[: -len(rest)])
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)["op_code"]
        except (ValueError, TypeError, LookupError) as error:
            raise CheckpointError(f"{journal} is damaged in line {number}: give another sweep=NAME") from error
