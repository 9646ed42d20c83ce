"""Call commands from Python: their options as words of a command line, and a Hydra of their own."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig

from vitlab.checkpoints.run_lock import leave_all
from vitlab.config.arguments import read_words
from vitlab.config.command import refusals, run
from vitlab.config.home import CONF
from vitlab.config.job import Job
from vitlab.distributed.environment import other_rank
from vitlab.errors import ConfigError

FOLDER = "VITLAB_RUN_FOLDER"  # for the other processes of a run, which do the user's script once more
OURS: tuple[type, ...] = (GlobalHydra, HydraConfig, JobRuntime, VersionBase)  # what Hydra keeps one of in a process


def call(name: str, task: Callable[[DictConfig], Any], words: list[str]) -> Any:
    """Run a command with these words in this process, and return what its task returns; raises VitlabError."""

    def job(cfg: DictConfig) -> Any:
        os.environ[FOLDER] = str(Job.current().folder)
        return run(task, cfg, name)

    if other_rank() and FOLDER in os.environ:
        words = [*words, f"hydra.run.dir={as_word(os.environ[FOLDER])}"]
    try:
        with refusals(), own_hydra(name) as hydra, warnings.catch_warnings():
            return hydra.run(name, job, read_words(words), with_log_configuration=False).return_value
    except SystemExit as stop:
        if stop.code == 130:  # which a command ends with
            raise KeyboardInterrupt from None
        raise
    finally:
        os.environ.pop(FOLDER, None)
        leave_all()


def compose(name: str, words: list[str]) -> DictConfig:
    """Compose the config that a command would run with these words. Raises VitlabError."""
    with refusals(), own_hydra(name) as hydra:
        return hydra.compose_config(name, read_words(words), run_mode=RunMode.RUN, with_log_configuration=False)


@contextmanager
def own_hydra(name: str) -> Iterator[Hydra]:
    """Use Hydra for one call; any other user of Hydra in this process finds it afterwards as it was."""
    instances: dict[type, Any] = Singleton._instances
    kept = {kind: instances.pop(kind) for kind in OURS if kind in instances}
    try:
        version.setbase("1.3")
        yield Hydra.create_main_hydra2(name, create_config_search_path(str(CONF)))
    finally:
        for kind in OURS:
            instances.pop(kind, None)
        instances.update(kept)


def as_words(options: Mapping[str, Any], within: str = "") -> list[str]:
    """Write options as overrides: {"trainer": {"max_epochs": 3}} and {"trainer.max_epochs": 3} are
    trainer.max_epochs=3. Raises ConfigError for a value that no YAML could hold."""
    words = []
    for name, value in options.items():
        key = f"{within}{name}"
        try:
            words += as_words(value, f"{key}.") if isinstance(value, Mapping) else [f"{key}={as_word(value)}"]
        except TypeError as error:
            raise ConfigError(f"{key}: {error}") from None
    return words


def as_word(value: Any) -> str:
    """Write a value in Hydra's grammar. Raises TypeError for one that it cannot express."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return QuotedString(str(value), Quote.single).with_quotes()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_word, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{as_word(one)}' for key, one in value.items())}}}"
    raise TypeError(f"a {type(value).__name__} is no value of a config: give a number, a text, None, a list or a dict")
