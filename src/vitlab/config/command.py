"""Run a Hydra job as a command: what goes wrong becomes one sentence and an exit status."""

import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from hydra import version
from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from vitlab.checkpoints.run_lock import leave_all
from vitlab.config.arguments import is_group, read_words
from vitlab.config.home import CONF
from vitlab.config.job import Job
from vitlab.config.keys import COMMANDS, check_keys, check_known, check_needed, check_nodes, trainer_keys
from vitlab.config.nodes import without
from vitlab.config.recipe import left_out
from vitlab.config.references import check_references
from vitlab.config.refusals import as_refusal
from vitlab.distributed.environment import other_rank
from vitlab.errors import ConfigError, VitlabError

LOG = logging.getLogger(__name__)  # train.log of the run's folder
NOISE = (  # what Lightning says to everybody, and nobody can act on
    ".*LeafSpec.* is deprecated",
    "The number of training batches .* is smaller than the logging interval",  # the end of an epoch is logged too
    "The '.*' does not have many workers",
    "Starting from v1.9.0, `tensorboardX`",
    ".*treespec.*",
    "Found .* module.* in eval mode at the start of training",  # parts that do not learn
    "It is recommended to use `self.log",  # with sync_dist: what is logged is the same on every rank
)


class Refused(SystemExit):
    """Ends what Hydra runs, wherever it is in it: Hydra goes on after errors of its callbacks."""

    def __init__(self, refusal: VitlabError):
        super().__init__(refusal.status)
        self.refusal = refusal


def run_command(name: str, task: Callable[[DictConfig], Any], after: int, first: str | None) -> None:
    """Run a task as a command: conf/<name>.yaml is composed with the words of the command line that come `after` so
    many, checked and handed to it. A first word without a key is the value of `first`. Refusals, ours and Hydra's, are
    a sentence on stderr and their exit status. In a multirun a job's are raised: the others run, and the sweep ends
    with the status of the first."""
    composed = False

    def job(cfg: DictConfig) -> Any:
        nonlocal composed
        composed = True
        return run(task, cfg, name)

    job.__module__ = name  # Hydra names the job after it
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises, where else it prints and leaves
    try:
        with refusals():
            sys.argv[after:] = read_words(sys.argv[after:], first)
            parser = get_args_parser()
            arguments = parser.parse_args(sys.argv[after:])
            if arguments.experimental_rerun:
                raise ConfigError("--experimental-rerun is not read; resume=RUN goes on with a run")
            version.setbase("1.3")
            _run_hydra(arguments, parser, job, str(CONF), name)
    except VitlabError as refusal:
        leave(refusal)
    except ValueError as error:
        if composed:
            raise
        leave(ConfigError(str(error)))  # what Hydra says of its flags and choices


@contextmanager
def refusals() -> Iterator[None]:
    """Raise VitlabError for all that is refused here, by us or by Hydra."""
    try:
        yield
    except Refused as refused:
        raise refused.refusal from None
    except Exception as error:
        refusal = as_refusal(error)
        if refusal is None:
            raise
        raise refusal from None


def run(task: Callable[[DictConfig], Any], cfg: DictConfig, name: str) -> Any:
    """Run the task on a composed config."""
    for message in NOISE:
        warnings.filterwarnings("ignore", message)
    try:
        job = Job.current()
        told = left_out(job.choices, job.folders)
        if told and not other_rank():
            print(told)
        check_keys(cfg, name)
        if cfg.get("resume") is None:  # a resumed run is checked with its own config
            check_nodes(cfg)
            check_needed(cfg, [one.key_or_group for one in job.parsed()])
        return task(cfg)
    except SystemExit as stop:  # Lightning leaves with 0 or 1 when a signal comes outside of training
        if type(stop).__name__ == "SIGTERMException":
            sys.exit(128 + signal.SIGTERM)
        if isinstance(stop.__context__, KeyboardInterrupt):
            sys.exit(128 + signal.SIGINT)
        raise
    except Exception as error:
        refusal = as_refusal(error)
        if refusal is None:
            raise
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise refusal from error
        LOG.info("%s: %s", type(refusal).__name__, refusal)
        raise Refused(refusal) from error


def check_start(cfg: DictConfig) -> None:
    """Raise VitlabError for keys that nobody could run, before a folder is made."""
    own, name = without(cfg, ("hydra",)), str(cfg.hydra.job.config_name)
    check_references(own, deep=False)
    if name in COMMANDS:
        check_keys(own, name)
    if name in ("train", "check") and cfg.sweep is not None and cfg.hydra.mode != RunMode.MULTIRUN:
        raise ConfigError(f"sweep={cfg.sweep} names a sweep, and this is one run: add -m, and say what varies")


def check_sweep(cfg: DictConfig) -> None:
    """Raise VitlabError, before the first job of a sweep, for what would be refused in each of them."""
    check_start(cfg)
    if str(cfg.hydra.job.config_name) == "train":
        check_train_sweep(cfg)
    job, own = Job.current(), without(cfg, ("hydra",))
    given = job.parsed()
    swept = [one.key_or_group for one in given if one.is_sweep_override()]
    swept += map(str, cfg.hydra.sweeper.get("params") or ())
    check_known(
        [key.removeprefix("trainer.") for key in swept if key.startswith("trainer.")], "trainer", trainer_keys()
    )
    if not any(map(is_group, swept)):
        check_nodes(own)
        check_needed(own, [*swept, *(one.key_or_group for one in given)])


def check_train_sweep(cfg: DictConfig) -> None:
    """Raise ConfigError for a sweep that could not be resumed: resume=, a bad name, or Hydra's own launcher or
    sweeper."""
    if cfg.resume is not None:
        raise ConfigError("resume= goes on with one run; give it without -m")
    if cfg.sweep is not None and not re.fullmatch(r"[\w+-][\w.+-]*", cfg.sweep, re.ASCII):
        raise ConfigError(f"sweep={cfg.sweep} is no name of a folder: letters, digits and ._+- make one")
    choices = cfg.hydra.runtime.choices
    if not OmegaConf.is_dict(cfg.hydra.sweeper):
        raise ConfigError(f"hydra.sweeper={cfg.hydra.sweeper} is no sweeper; choose one: hydra/sweeper=NAME")
    if choices["hydra/launcher"] != "basic":
        raise ConfigError(f"hydra/launcher={choices['hydra/launcher']} is not read: engine= says where jobs run")
    if not str(choices["hydra/sweeper"]).startswith("vitlab_"):
        raise ConfigError(
            f"hydra/sweeper={choices['hydra/sweeper']} would run all jobs in one process, and keep no track: use "
            "vitlab_grid, vitlab_random or vitlab_optuna"
        )


def leave(refusal: VitlabError) -> NoReturn:
    """Say it, give back the run's folder, and end the process with the status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would raise for a data worker that ends from here on
    leave_all()
    sys.stdout.flush()
    print(f"\n{type(refusal).__name__}: {refusal}", file=sys.stderr, flush=True)
    sys.exit(refusal.status)
