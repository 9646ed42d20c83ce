"""Sweeps as Hydra starts them: it expands what varies; vitlab freezes the jobs, runs them, and goes on with them."""

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from vitlab.checkpoints.run_folder import numbered
from vitlab.errors import ConfigError


@dataclass
class GridConf:
    _target_: str = "hydra_plugins.vitlab_plugins.sweepers.Grid"
    params: dict[str, Any] | None = None  # what varies, as on the command line, which wins: optimizer.lr: 1e-3,1e-4


ConfigStore.instance().store(group="hydra/sweeper", name="vitlab_grid", node=GridConf)
OWN = ("hydra.sweep", "hydra/sweep", "hydra.launcher", "hydra/launcher", "hydra.mode", "hydra.run")  # no job's


class Grid(Sweeper):
    """Every combination of what varies, on the command line or in `params`."""

    def __init__(self, params: dict[str, Any] | None):
        self.params = params or {}
        self.told: set[str | None] = {None}
        self.names: set[str] = set()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.loader = hydra_context.config_loader
        self.cfg = config

    def sweep(self, arguments: list[str]) -> None:
        """Freeze the jobs, or go on with those that were. Raises VitlabError where jobs have failed."""
        from vitlab.config.build import build
        from vitlab.config.frozen import of_the_jobs, secret_words
        from vitlab.sweeps.start import taken, work_off

        cfg = self.cfg
        words = [f"{key}={value}" for key, value in self.params.items()] + arguments
        overrides = of_the_jobs(OverridesParser.create(config_loader=self.loader).parse_overrides(words))
        folder = Path(cfg.hydra.sweep.dir).absolute()
        modules = [f"vitlab.programs.{cfg.hydra.job.config_name}"]
        command = [str(Path(sys.argv[0]).absolute()), *secret_words(cfg)]
        command += [word for word in cfg.hydra.overrides.hydra if not word.lstrip("+~").startswith(OWN)]
        with (
            taken(folder, cfg.break_lock) as sweep,
            build(cfg.engine, "engine", sweep=folder, modules=modules) as engine,
        ):
            work_off(sweep, engine, command, self.source(sweep, overrides))

    def source(self, sweep: Any, overrides: list[Override]) -> Any:
        """Freeze all jobs, or compare them with those that are. Raises ConfigError for another sweep of that name."""
        from vitlab.config.frozen import asked_for
        from vitlab.sweeps.request import check_same
        from vitlab.sweeps.start import NoMore

        if not overrides:
            if not sweep.frozen:
                raise ConfigError(f"there is no sweep {sweep.path} to go on with; say what is to vary: KEY=A,B")
            return NoMore()
        last = {one.get_key_element(): one for one in overrides}.values()  # of a key that is given twice
        same, varying = ([one for one in last if one.is_sweep_override() is varies] for varies in (False, True))
        jobs = self.jobs(varying)
        request = asked_for(self.cfg, jobs=jobs)
        if sweep.frozen:
            check_same(sweep, request)
            return NoMore()
        sweep.clear()
        for job, config in [self.composed(number, same, words) for number, words in enumerate(jobs)]:
            sweep.add(job, config)
        sweep.freeze(request)
        return NoMore()

    def jobs(self, varying: list[Override]) -> list[list[str]]:
        """What each job states of what varies."""
        for one in varying:
            if one.is_interval_sweep():
                raise ConfigError(
                    f"{one.input_line} is a range to draw from, and a grid has points: list them, or choose "
                    "hydra/sweeper=vitlab_random or vitlab_optuna"
                )
        return BasicSweeper.split_arguments(varying, None)[0]

    def composed(self, number: int, same: list[Override], words: Sequence[str], prefix: str = "") -> tuple[Any, bytes]:
        """Compose a job of what all jobs state and its own `words`, and check it: the job, and its config."""
        from vitlab.config.frozen import as_yaml, frozen
        from vitlab.sweeps.folder import Job

        shared = BasicSweeper.split_arguments(same, None)[0][0]
        found = frozen(self.cfg, self.loader, [*shared, *words], number, [one.key_or_group for one in same])
        if found.told not in self.told:
            print(found.told)
            self.told.add(found.told)
        name = next(one.name for one in numbered(Path(prefix + found.name)) if one.name not in self.names)
        self.names.add(name)
        job = Job(
            number=number,
            name=name,
            overrides=found.overrides,
            choices=found.choices,
            monitor=found.monitor,
            run_id=secrets.token_hex(4),
        )
        return job, as_yaml(found.config)
