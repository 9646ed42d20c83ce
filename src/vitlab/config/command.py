"""Run a command: compose its config, check it, and hand it to a program; what goes wrong becomes one sentence and an
exit status."""

import logging
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from vitlab.checkpoints.run_folder import (
    LATEST,
    NEWEST,
    check_name,
    find_checkpoint,
    find_model,
    find_unstarted_job,
    resolve_name,
)
from vitlab.checkpoints.run_lock import leave_all
from vitlab.config.arguments import is_group, read_words
from vitlab.config.build import construct
from vitlab.config.composition import (
    check_hydra_keys,
    compose,
    config_loader,
    format_config,
    initialize_hydra,
    is_sweep,
)
from vitlab.config.home import OF_THE_USER
from vitlab.config.identity import AUTO
from vitlab.config.job import Job
from vitlab.config.keys import check_keys, check_known, check_needed, check_nodes, read_keys, trainer_keys
from vitlab.config.nodes import convert_unresolved, flatten, remove_keys, resolve_config, resolve_value
from vitlab.config.redaction import Redaction
from vitlab.config.refusals import find_signal, translate_refusal
from vitlab.config.trust import trusting
from vitlab.config.usual_words import check_usual_words
from vitlab.distributed.environment import begin_process, is_other_rank
from vitlab.errors import ConfigError, VitlabError
from vitlab.interruption import end_at_once, heed_ignored, raise_again

NOISE = (  # what Lightning says to everybody, and nobody can act on
    ".*LeafSpec.* is deprecated",
    "The number of training batches .* is smaller than the logging interval",  # the end of an epoch is logged too
    "The '.*' does not have many workers",
    "Starting from v1.9.0, `tensorboardX`",
    ".*treespec.*",
    "Found .* module.* in eval mode at the start of training",  # parts that do not learn
    "It is recommended to use `self.log",  # with sync_dist: what is logged is the same on every rank
)


def run_command(name: str, task: Callable[[DictConfig], Any], after: int, first: str | None) -> None:
    """Run a task as a command: compose conf/<name>.yaml with the words of the command line that come `after` so many,
    check it, and hand it to the task. A first word without a key is the value of `first`. Refusals, ours and Hydra's,
    end the process with one sentence on stderr and their exit status."""
    begin_process()
    logging.getLogger().addHandler(logging.NullHandler())  # what libraries log is for train.log
    with exit_on_error(), refusals(), heed_ignored():
        with correct_words(name, sys.argv[after:]):
            arguments = read_words(sys.argv[after:], first)
        sys.argv[after:] = arguments.words  # other processes of a run are started with the same
        with initialize_hydra(name, arguments.config_dir):
            with correct_words(name, arguments.words):
                cfg, note = compose(arguments.config_name or name, arguments.overrides, multirun=arguments.multirun)
            if arguments.help:
                print(cfg.hydra.help.template)
            elif arguments.cfg:
                print(format_config(cfg, arguments.cfg, arguments.package, arguments.resolve), end="")
            else:
                with Redaction(remove_keys(cfg, ("hydra",))).redact_output(), exit_on_error(), refusals():
                    if note and not is_other_rank():
                        print(note)
                    run(task, cfg, name)


@contextmanager
def correct_words(name: str, words: list[str]) -> Iterator[None]:
    """Where words are refused that are usual in other tools, raise ConfigError with the command that they mean; where a
    resumed run has a key that the default option does not have, say that its option is to be chosen, too."""
    try:
        yield
    except (ConfigError, HydraException) as error:
        check_usual_words(name, read_keys(name).kinds, words)
        sentence = str(translate_refusal(error))
        absent = re.match(r"there is no key (\w+)\.", sentence)
        if absent and is_group(absent[1]) and any(word.startswith("resume=") for word in words):
            raise ConfigError(
                f"{sentence}; to change a key of a resumed run, also choose the option that it has: {absent[1]}=NAME, "
                "and --config-dir=DIR if it is your own"
            ) from None
        raise


@contextmanager
def refusals() -> Iterator[None]:
    """Raise VitlabError for all that is refused here, by us or by another library."""
    try:
        yield
    except Exception as error:
        refusal = translate_refusal(error)
        if refusal is None:
            raise
        raise refusal from None


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the process where an error ends a command."""
    try:
        yield
    except VitlabError as refusal:
        leave(refusal)
    except KeyboardInterrupt:
        leave_all()
        sys.exit(128 + signal.SIGINT)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    finally:
        end_at_once()  # by a Ctrl-C while Python takes its libraries down


def run(task: Callable[[DictConfig], Any], cfg: DictConfig, name: str) -> Any:
    """Check a composed config, and run the task on it, or the sweep that it asks for. Raises VitlabError."""
    for message in NOISE:
        warnings.filterwarnings("ignore", message)
    check_hydra_keys(cfg)
    own = remove_keys(cfg, ("hydra",))
    check_keys(own, name)
    try:
        packages = resolve_value(own.get("trust") or ())
        with trusting(packages) if packages or OF_THE_USER else nullcontext():
            if is_sweep(cfg):
                check_sweep(cfg, own, name)
                raise_again()
                return construct(resolve_config(cfg.hydra.sweeper), "hydra.sweeper").sweep(cfg, config_loader())
            OmegaConf.set_struct(own, True)
            check_start(own, name)
            return task(own)
    except SystemExit as stop:
        if status := find_signal(stop):
            sys.exit(status)
        raise


def check_start(cfg: DictConfig, name: str) -> None:
    """Raise VitlabError for what can be refused before the libraries are loaded: unknown keys, and a run that is not
    there."""
    if "name" in cfg:
        check_name("name", cfg.name)
    if cfg.get("sweep") is not None and name in ("train", "check"):
        raise ConfigError(
            f"sweep={cfg.sweep} names a sweep, but the command starts one run; add -m and the values to vary: -m "
            "KEY=A,B"
        )
    check_output(cfg)
    run, resume = cfg.get("run"), cfg.get("resume")
    if run is not None and name != "replay":  # a run that diverged may have saved nothing
        find_model(run)
    if not is_other_rank():
        for key, value in (("run", run), ("resume", resume)):
            if value == NEWEST and (path := resolve_name(value)) != Path(value):
                print(f"{key}=latest is {path}")
    if resume not in (None, AUTO) and not find_unstarted_job(resume):
        find_checkpoint(resume, *LATEST)
    if resume is None:  # a resumed run is checked with its own config
        check_nodes(cfg)
        check_needed(cfg, [one.key_or_group for one in Job.current().parse_overrides()])


def check_output(cfg: DictConfig) -> None:
    """Raise ConfigError for an output that would replace what the command reads, or a file in the folder of its
    data."""
    output = cfg.get("output")
    if not output or not cfg.get("overwrite") or not os.path.exists(output):
        return
    for key, value in flatten(convert_unresolved(cfg)):
        if key == "output" or not isinstance(value, str):
            continue
        read, place = Path(os.path.realpath(value)), Path(os.path.realpath(output))
        if read == place or (key.startswith("data.") and read.is_dir() and read in place.parents):
            raise ConfigError(f"output={output} would overwrite the input {key}={value}; name another place")


def check_sweep(cfg: DictConfig, own: DictConfig, name: str) -> None:
    """Raise VitlabError, before the first job of a sweep, for what would be refused in each of them."""
    if name != "train":
        raise ConfigError(f"-m starts a sweep, which only train can do, not {name}; leave out -m")
    check_name("name", own.name)
    check_name("hydra.sweep.dir", str(cfg.hydra.sweep.dir))
    check_train_sweep(cfg)
    given = Job.current().parse_overrides()
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
        raise ConfigError("resume= resumes one run, not a sweep; leave out -m")
    if cfg.sweep is not None and not re.fullmatch(r"[\w+-][\w.+-]*", cfg.sweep, re.ASCII):
        raise ConfigError(f"sweep={cfg.sweep} is not a valid folder name: use letters, digits and ._+-")
    choices = cfg.hydra.runtime.choices
    if not OmegaConf.is_dict(cfg.hydra.sweeper):
        raise ConfigError(f"hydra.sweeper={cfg.hydra.sweeper} is not a sweeper; choose one with hydra/sweeper=NAME")
    if choices["hydra/launcher"] != "basic":
        raise ConfigError(
            f"hydra/launcher={choices['hydra/launcher']} is not used here; choose where jobs run with engine=NAME"
        )
    if not str(choices["hydra/sweeper"]).startswith("vitlab_"):
        raise ConfigError(
            f"hydra/sweeper={choices['hydra/sweeper']} cannot resume its jobs; use "
            "vitlab_grid, vitlab_random or vitlab_optuna"
        )


def leave(refusal: VitlabError) -> NoReturn:
    """Say it, give back the run's folder, and end the process with the status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would raise for a data worker that ends from here on
    leave_all()
    sys.stdout.flush()
    print(f"\n{type(refusal).__name__}: {refusal}", file=sys.stderr, flush=True)
    sys.exit(refusal.status)
