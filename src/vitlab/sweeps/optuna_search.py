"""Search by Optuna (Akiba et al., 2019, arXiv:1907.10902): earlier results guide the choice of values, and bad jobs end
early. The study is a journal file in the sweep's folder, which only the sweeper writes."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_whole
from vitlab.errors import CheckpointError, ConfigError
from vitlab.monitors import better
from vitlab.reports.run import read_last_step, read_metric, read_result
from vitlab.reports.search import draw_sweep
from vitlab.spelling import suggest_name
from vitlab.sweeps.folder import JOURNAL, Job, State, SweepFolder
from vitlab.sweeps.search import Compose, RandomSearch
from vitlab.sweeps.space import Axis

STUDY = "sweep"
PRUNE_REASONS = {"median": "worse than the median", "successive_halving": "not among the best at this step"}


class OptunaSearch(RandomSearch):
    """Asks an Optuna study for the values of each job, and reports the results to it. A job's number is its trial's.

    `objectives` are names of figures in a run's result, and `directions` minimize or maximize each; null means the
    monitor, in its own direction. `sampler` is tpe (Watanabe, 2023, arXiv:2304.11127) or random. It is seeded for each
    `name`, `seed`, trial and key, so that a resumed search suggests the same values. `pruner` is none, median or
    successive_halving (Li et al., 2018, arXiv:1810.05934) and reads the monitor in metrics.csv. The median waits until
    `prune_after_trials` trials have ended; both wait for `prune_after_steps` optimizer steps of a trial.
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
        check_names(objectives=objectives, directions=directions)
        check_counts(
            num_startup_trials=num_startup_trials,
            prune_after_trials=prune_after_trials,
            prune_after_steps=prune_after_steps,
        )
        self.objectives = objectives or [monitor]
        self.directions = directions or [f"{better(one)}imize" for one in self.objectives]
        self._check_choices(sampler, pruner)
        self.sampler, self.num_startup_trials = sampler, num_startup_trials
        self.pruner = pruner
        self.study = self._open_study(prune_after_trials, prune_after_steps)
        known = [one.name.lower() for one in self.study.directions]
        if known != self.directions or len(self.study.get_trials(deepcopy=False)) < self.number:
            raise CheckpointError(
                f"{sweep.path / JOURNAL} belongs to another search: restore the file, or give another sweep=NAME"
            )
        for job in sweep.jobs():
            self.record(job, sweep.state(job.name))

    def _check_choices(self, sampler: str, pruner: str) -> None:
        """Raise ConfigError for an unknown choice, or for choices that do not fit together."""
        check_choice("sampler", sampler, ("tpe", "random"))
        check_choice("pruner", pruner, ("none", "median", "successive_halving"))
        for direction in self.directions:
            check_choice("directions", direction, ("minimize", "maximize"))
        if len(self.directions) != len(self.objectives):
            raise ConfigError(
                "hydra.sweeper.directions needs one direction for each of the objectives "
                f"[{','.join(self.objectives)}], "
                f"but has {len(self.directions)}"
            )
        if pruner != "none" and self.objectives != [self.monitor]:
            raise ConfigError(
                f"hydra.sweeper.pruner={pruner} reads only the monitor; set it to none, or set objectives to null"
            )

    def overrides(self, number: int) -> list[str]:
        """Ask the study for the values of a job; after a kill between two of them, for those that are missing."""
        import optuna

        trials = self.study.get_trials(deepcopy=False)
        if number == len(trials):
            self.study.ask()
            trials = self.study.get_trials(deepcopy=False)
        trial = optuna.trial.Trial(self.study, trials[number]._trial_id)
        return [axis.override(self._suggest(trial, axis)) for axis in self.axes]

    def record(self, job: Job, state: State) -> None:
        """Report a job that has succeeded or was pruned to the study."""
        from optuna.trial import TrialState

        super().record(job, state)
        if state.status not in ("done", "pruned") or self._trial(job).state.is_finished():
            return
        self._report(job)
        if state.status == "pruned":
            self.study.tell(job.number, state=TrialState.PRUNED)
            return
        values = [self._read_objective(job, objective) for objective in self.objectives]
        if all(map(math.isfinite, values)):
            self.study.tell(job.number, values)
        else:
            self.study.tell(job.number, state=TrialState.FAIL)

    def reason_to_prune(self, job: Job) -> str | None:
        """Say why to prune a job, by its measurements since the last call; None if it should continue."""
        return PRUNE_REASONS[self.pruner] if self.pruner != "none" and self._report(job, prune=True) else None

    def report(self, outcomes: list[dict[str, Any]]) -> None:
        """Print the Pareto-optimal jobs of several objectives, and draw which keys matter."""
        super().report(outcomes)
        if len(self.objectives) > 1:
            names = {job.number: job.name for job in self.sweep.jobs()}
            print("\njobs that no other job beats in every objective:")
            for trial in self.study.best_trials:
                values = zip(self.objectives, trial.values, strict=True)
                print(f"{names[trial.number]}: {', '.join(f'{name} {value:.4g}' for name, value in values)}")
        with suppress(ConfigError):  # too few jobs for a picture
            print(f"\npictures: {', '.join(map(str, draw_sweep(self.sweep.path, outcomes, self.sweep.scales())))}")

    def _open_study(self, after_trials: int, after_steps: int) -> Any:
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
        repair(path)
        build_pruner: dict[str, Callable[[], pruners.BasePruner]] = {
            "none": pruners.NopPruner,
            "median": lambda: pruners.MedianPruner(after_trials, after_steps),
            "successive_halving": lambda: pruners.SuccessiveHalvingPruner(after_steps or "auto"),
        }
        return optuna.create_study(
            study_name=STUDY,
            storage=JournalStorage(JournalFileBackend(str(path))),
            directions=[StudyDirection[one.upper()] for one in self.directions],
            load_if_exists=True,
            pruner=build_pruner[self.pruner](),
        )

    def _suggest(self, trial: Any, axis: Axis) -> Any:
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
        """Report the new measurements of a run to the study; return whether to prune it."""
        import optuna

        if self.pruner == "none":
            return False
        stored, folder = self._trial(job), self.sweep.path / job.name
        measured = [one for one in read_metric(folder, self.monitor) if one[0] not in stored.intermediate_values]
        for step, value in measured:
            trial = optuna.trial.Trial(self.study, stored._trial_id)
            trial.report(value, step)
            if prune and trial.should_prune() and measured[-1][0] < read_last_step(folder):
                return True
        return False

    def _read_objective(self, job: Job, objective: str) -> float:
        """Read an objective of a finished run, NaN if it is null. Raises ConfigError for an unknown one."""
        result = read_result(self.sweep.path / job.name) or {}
        figures = {**result, **result.get("last", {}), **result.get("test", {}), self.monitor: result.get("score")}
        known = [name for name, value in figures.items() if isinstance(value, int | float)]
        if objective not in known and objective != self.monitor:
            raise ConfigError(f"hydra.sweeper.objectives: a run has no {objective}{suggest_name(objective, known)}")
        value = figures[objective]
        return math.nan if value is None else float(value)


def check_choice(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"hydra.sweeper.{key} {value} is not one of: {', '.join(known)}")


def repair(journal: Path) -> None:
    """Remove the half-written line and the lock that a killed sweeper left; no other process writes to this journal.
    Raises CheckpointError for a corrupted line."""
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


def check_names(**options: Any) -> None:
    """Raise ConfigError for an option of hydra.sweeper that is neither null nor a list of names."""
    for key, value in options.items():
        if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            raise ConfigError(f"hydra.sweeper.{key} {value} is not a list of names; write hydra.sweeper.{key}=[NAME]")


def check_counts(**options: int) -> None:
    """Raise ConfigError for an option of hydra.sweeper below 0."""
    for key, number in options.items():
        if number < 0:
            raise ConfigError(f"hydra.sweeper.{key} {number} is not at least 0")
