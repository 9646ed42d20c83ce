"""Start sweeps for Hydra, which expands what varies; vitlab freezes the jobs, runs them, and resumes them."""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from vitlab.checkpoints.run_folder import number_folders
from vitlab.config.arguments import is_group
from vitlab.config.job import Job
from vitlab.errors import ConfigError, format_error

OWN = ("hydra.sweep", "hydra/sweep", "hydra.launcher", "hydra/launcher", "hydra.mode", "hydra.run")  # no job's


@dataclass
class GridConf:
    _target_: str = "hydra_plugins.vitlab_plugins.sweepers.Grid"
    params: dict[str, Any] = field(default_factory=dict)  # what varies; the command line wins: optimizer.lr: 1e-3,1e-4


@dataclass
class RandomConf(GridConf):
    _target_: str = "hydra_plugins.vitlab_plugins.sweepers.Random"
    num_trials: int = 20
    seed: int = 0


@dataclass
class OptunaConf(RandomConf):
    _target_: str = "hydra_plugins.vitlab_plugins.sweepers.Optuna"
    objectives: Any = None  # a list of figures of a run's result; null: the monitor
    directions: Any = None  # a list: minimize or maximize, for each; null: whichever is better
    sampler: str = "tpe"  # or random
    num_startup_trials: int = 10  # random trials before TPE begins
    pruner: str = "none"  # or median, successive_halving
    prune_after_trials: int = 5  # ended trials that the median needs
    prune_after_steps: int = 0  # optimizer steps of a trial before it may be ended


STORE = ConfigStore.instance()
for name, node in (("grid", GridConf), ("random", RandomConf), ("optuna", OptunaConf)):
    STORE.store(group="hydra/sweeper", name=f"vitlab_{name}", node=node)


class Grid:
    """Every combination of what varies, on the command line or in `params`."""

    def __init__(self, params: dict[str, Any]):
        for key, value in params.items():
            if isinstance(value, dict):
                raise ConfigError(
                    f"hydra.sweeper.params.{key} holds keys instead of values; on the command line, type "
                    f"{key}.KEY=A,B, or in the YAML of a study params: {{{key}.KEY: 'A,B'}}"
                )
        self.params = params
        self.notes: set[str] = set()
        self.names: set[str] = set()

    def sweep(self, cfg: DictConfig, loader: ConfigLoader) -> None:
        """Freeze the jobs, or resume those of an earlier start. Raises VitlabError where jobs have failed."""
        from vitlab.config.build import build
        from vitlab.config.sweep_jobs import Composer, secret_words
        from vitlab.config.trust import trust_words
        from vitlab.invocation import build_command
        from vitlab.sweeps.start import lock_sweep, run_jobs

        self.cfg, self.loader = cfg, loader
        self.compose = Composer(cfg, loader)
        folder = Path(cfg.hydra.sweep.dir).absolute()
        modules = [f"vitlab.programs.{cfg.hydra.job.config_name}"]
        command = [*build_command(str(cfg.hydra.job.config_name)), *secret_words(cfg)]
        command += [word for word in cfg.hydra.overrides.hydra if not word.lstrip("+~").startswith(OWN)]
        command += trust_words(cfg.trust)
        with (
            lock_sweep(folder, new=not is_found_again(cfg), break_lock=cfg.break_lock) as sweep,
            build(cfg.engine, "engine", sweep=sweep.path, modules=modules) as engine,
        ):
            run_jobs(sweep, engine, command, self.source(sweep, Job.current().overrides))

    def source(self, sweep: Any, arguments: list[str]) -> Any:
        """Choose where the jobs of this start come from. Raises ConfigError if the sweep of that name is another
        one."""
        from vitlab.config.sweep_jobs import describe_request, select_job_overrides
        from vitlab.sweeps.folder import Request
        from vitlab.sweeps.request import check_same

        words = [f"{key}={value}" for key, value in self.params.items()] + arguments
        given = select_job_overrides(OverridesParser.create(config_loader=self.loader).parse_overrides(words))
        if not given:
            if not sweep.is_saved:
                raise ConfigError(
                    f"there is no sweep {sweep.path} to resume; to start one, give values to vary: KEY=A,B"
                )
            request = sweep.request()
            self.shared = request.same
            self.check_kind(sweep, request)
            return self.jobs(sweep, request)
        last = {one.get_key_element(): one for one in given}.values()  # the last value wins where a key is given twice
        same, varying = ([one for one in last if one.is_sweep_override() is varies] for varies in (False, True))
        self.shared = [str(one.input_line) for one in same]
        request = Request(**describe_request(self.cfg, same=self.shared, **self.describe_jobs(varying)))
        if sweep.is_saved:
            check_same(sweep, request)
        else:
            sweep.clear()
        return self.jobs(sweep, request)

    def check_kind(self, sweep: Any, request: Any) -> None:
        """Raise ConfigError for a sweep that another sweeper has frozen."""
        if request.search is not None:
            raise ConfigError(
                f"{sweep.path} is a search; to resume it, add hydra/sweeper=NAME hydra.sweeper.num_trials=N"
            )

    def describe_jobs(self, varying: list[Override]) -> dict[str, Any]:
        """What is asked for of what varies: the words of each job."""
        for one in varying:
            if one.is_interval_sweep():
                raise ConfigError(
                    f"{one.input_line} is an interval, but a grid needs a list of values: KEY=A,B, or choose "
                    "hydra/sweeper=vitlab_random or vitlab_optuna"
                )
        words = [[f"{one.get_key_element()}={value}" for value in list_values(one)] for one in varying]
        return {"jobs": list(map(list, product(*words)))}

    def jobs(self, sweep: Any, request: Any) -> Any:
        """All jobs, frozen before the first one starts."""
        from vitlab.sweeps.schedule import JobSource

        if not sweep.is_saved:
            for job, config in [self.compose_job(*job) for job in enumerate(request.jobs)]:
                sweep.add(job, config)
            sweep.save(request)
        return JobSource()

    def compose_job(self, number: int, words: Sequence[str], prefix: str = "") -> tuple[Any, bytes]:
        """Compose a job from what all jobs state and its own words, and check it; return the job and its config."""
        from vitlab.config.sweep_jobs import format_yaml
        from vitlab.sweeps import folder

        found = self.compose(number, self.shared, words)
        if found.note and found.note not in self.notes:
            print(found.note)
            self.notes.add(found.note)
        name = next(one.name for one in number_folders(Path(prefix + found.name)) if one.name not in self.names)
        self.names.add(name)
        job = folder.Job(
            number=number,
            name=name,
            overrides=found.overrides,
            choices=found.choices,
            monitor=found.monitor,
            run_id=secrets.token_hex(4),
        )
        return job, format_yaml(found.config)


class Random(Grid):
    """A number of jobs at random places: from choices, ranges and intervals, as tag(log, interval(1e-4, 1e-2))."""

    def __init__(self, params: dict[str, Any], num_trials: int, **options: Any):
        super().__init__(params)
        if num_trials < 1:
            raise ConfigError(f"hydra.sweeper.num_trials {num_trials} is not at least 1")
        self.num_trials = num_trials
        self.options = options

    def check_kind(self, sweep: Any, request: Any) -> None:
        """Raise ConfigError for a sweep that is no search of this kind, or whose files have changed, so that jobs still
        to be composed would not be like the others."""
        from vitlab.config.sweep_jobs import describe_request
        from vitlab.sweeps.request import check_same

        if set(request.search or ()) != {"axes", "name", *self.options}:
            raise ConfigError(
                f"{sweep.path} is a search of another kind; leave out hydra/sweeper=, or set it to the sweeper of this "
                "search"
            )
        now = describe_request(self.loader.load_sweep_config(self.cfg, self.shared))
        check_same(sweep, replace(request, **now))

    def describe_jobs(self, varying: list[Override]) -> dict[str, Any]:
        """The axes of the search, and how they are searched. More trials are not another search."""
        if not varying:
            raise ConfigError("a search needs something to vary: optimizer.lr=interval(1e-4,1e-2)")
        axes = [build_axis(one, self.cfg) for one in varying]
        return {"search": {"axes": axes, "name": str(self.cfg.name), **self.options}}

    def jobs(self, sweep: Any, request: Any) -> Any:
        """Jobs that are frozen when there is room for each. A first look at one sees whether there can be any."""
        from vitlab.sweeps.space import Axis

        options = dict(request.search)
        axes, name = [Axis(**axis) for axis in options.pop("axes")], options.pop("name")
        found = self.compose(0, self.shared, [axis.override(axis.first) for axis in axes])
        search = self.search(sweep, axes, name, found.monitor, options)
        if not sweep.is_saved:
            sweep.save(request)
        return search

    def search(self, sweep: Any, axes: list[Any], name: str, monitor: str, options: dict[str, Any]) -> Any:
        from vitlab.sweeps.search import RandomSearch

        return RandomSearch(sweep, self.trial, axes=axes, num_trials=self.num_trials, **options)

    def trial(self, number: int, words: Sequence[str]) -> tuple[Any, bytes]:
        return self.compose_job(number, words, f"{number:0{len(str(self.num_trials - 1))}}_")


class Optuna(Random):
    """Jobs where Optuna suggests them; bad ones are ended early."""

    def search(self, sweep: Any, axes: list[Any], name: str, monitor: str, options: dict[str, Any]) -> Any:
        from vitlab.sweeps.optuna_search import OptunaSearch

        more = {"name": name, "monitor": monitor, **options}
        return OptunaSearch(sweep, self.trial, axes=axes, num_trials=self.num_trials, **more)


def is_found_again(cfg: DictConfig) -> bool:
    """Whether the sweep has a name by which a later start finds its folder."""
    named = any(word.lstrip("+").startswith("hydra.sweep.dir=") for word in cfg.hydra.overrides.hydra)
    return bool(named or cfg.sweep or cfg.hydra.runtime.choices.get("study"))


def list_values(one: Override) -> list[str]:
    """List the values of a key, as words. Raises ConfigError where there is none, or where one would make two jobs that
    are the same."""
    try:
        values = list(one.sweep_string_iterator())
    except (HydraException, ValueError) as error:
        raise ConfigError(f"{one.input_line}: {format_error(error)}") from error
    if not values:
        raise ConfigError(f"{one.input_line} gives no values; list them: {one.get_key_element()}=A,B")
    most, times = Counter(values).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"{one.input_line} gives {most} twice; leave one of them out")
    return values


def build_axis(one: Override, cfg: DictConfig) -> dict[str, Any]:
    """Give what a search may choose for a key, in plain types: an interval, of whole numbers if the key holds one in
    the config, or by int(interval(1,4)); a range with a step of 1 likewise; else a choice."""
    value: Any = one.value()
    name = one.get_key_element()
    if one.is_interval_sweep():
        if is_group(name):
            raise ConfigError(f"{one.input_line}: {name} is a group, whose options have names; list them: {name}=A,B")
        held = OmegaConf.select(cfg, name.lstrip("+"), throw_on_resolution_failure=False)
        whole = "float" not in value.tags and int in (type(held), type(value.start))
        return {"name": name, "low": value.start, "high": value.end, "whole": whole, "log": "log" in value.tags}
    if one.is_range_sweep() and value.step == 1 and isinstance(found := value.range(), range) and len(found) > 1:
        return {"name": name, "low": found[0], "high": found[-1], "whole": True, "log": "log" in value.tags}
    return {"name": name, "choices": list_values(one)}
