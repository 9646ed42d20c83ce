"""Call commands from Python: their options as words of a command line."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from vitlab.checkpoints.run_lock import leave_all
from vitlab.config import composition
from vitlab.config.arguments import read_words
from vitlab.config.command import refusals, run
from vitlab.config.home import OF_THE_USER
from vitlab.config.values import format_value
from vitlab.distributed.environment import begin_process
from vitlab.errors import ConfigError


def call(name: str, task: Callable[[DictConfig], Any], words: list[str]) -> Any:
    """Run a command with these words in this process, and return what its task returns; raises VitlabError."""
    begin_process()
    try:
        return call_within(name, task, words)
    except SystemExit as stop:
        if stop.code == 130:  # which a command ends with
            raise KeyboardInterrupt from None
        raise
    finally:
        leave_all()


def call_within(name: str, task: Callable[[DictConfig], Any], words: list[str]) -> Any:
    """Run a command with these words within another one, which keeps the folders that it has locked and finds configs
    in the same places. Raises VitlabError."""
    config_dir = OF_THE_USER[0] if OF_THE_USER else None
    with refusals(), composition.initialize_hydra(name, config_dir), warnings.catch_warnings():
        return run(task, composition.compose(name, read_words(words).overrides).cfg, name)


def compose(name: str, words: list[str]) -> DictConfig:
    """Compose the config that a command would run with these words. Raises VitlabError."""
    with refusals(), composition.initialize_hydra(name):
        return composition.compose(name, read_words(words).overrides).cfg


def format_overrides(options: Mapping[str, Any], within: str = "") -> list[str]:
    """Write options as overrides: {"trainer": {"max_epochs": 3}} and {"trainer.max_epochs": 3} are
    trainer.max_epochs=3. Raises ConfigError for a value that no YAML could hold."""
    words = []
    for name, value in options.items():
        key = f"{within}{name}"
        try:
            words += (
                format_overrides(value, f"{key}.") if isinstance(value, Mapping) else [f"{key}={format_value(value)}"]
            )
        except TypeError as error:
            raise ConfigError(f"{key}: {error}") from None
    return words
