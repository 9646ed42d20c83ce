"""Compose the config of a command with Hydra, and nothing more: Hydra's own application would make folders and write
files before a check has passed."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra import initialize_config_dir, version
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from vitlab.config.arguments import check_choices
from vitlab.config.home import CONF, EXPERIMENTS, OF_THE_USER
from vitlab.config.recipe import fit
from vitlab.errors import ConfigError

# Hydra 1.3 can also behave as earlier ones did; later ones have one behaviour, and warn of the option
VERSION_BASE: dict[str, Any] = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}
READ = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweeper", "hydra.searchpath", "hydra.mode")  # keys of Hydra
CHECKED_LATER = ("hydra/sweeper", "hydra/launcher")  # of a sweep
OF_LIGHTNING = ("hydra.job.name", "hydra.output_subdir")  # its launcher gives these to the processes that it starts


@contextmanager
def initialize_hydra(command: str, config_dir: str | None = None) -> Iterator[None]:
    """Initialize Hydra for one command, which finds configs in `config_dir`, too. Any other user of Hydra in this
    process finds it afterwards as it was."""
    state, config, runtime = GlobalHydra.instance(), HydraConfig.instance(), JobRuntime.instance()
    theirs, their_config, their_base, their_job = state.hydra, config.cfg, version.getbase(), runtime.conf.get("name")
    if config_dir is not None:
        check_own_configs(config_dir)
    state.clear()
    OF_THE_USER[:] = [] if config_dir is None else [os.path.abspath(config_dir)]
    try:
        with initialize_config_dir(str(CONF), job_name=command, **VERSION_BASE):
            yield
    finally:
        GlobalHydra.instance().hydra, config.cfg = theirs, their_config
        version.VersionBase.instance().version_base = their_base
        runtime.set("name", their_job)


def check_own_configs(folder: str) -> None:
    """Raise ConfigError for a file in the user's folder of configs that has the name of one of ours, which Hydra would
    read in its place."""
    for root in (CONF, EXPERIMENTS):
        for ours in root.glob("**/*.yaml"):
            own = Path(folder) / ours.relative_to(root)
            if own.is_file() and own.read_bytes() != ours.read_bytes():
                raise ConfigError(f"{own} has the name of a config of vitlab, which would be read instead; rename it")


def config_loader() -> ConfigLoader:
    """Return the loader of the command for which Hydra is initialized."""
    return GlobalHydra.instance().config_loader()


class ComposedConfig(NamedTuple):
    """A config with the node `hydra`, which holds folders, choices and the mode, and a note for the user, or ""."""

    cfg: DictConfig
    note: str


def compose(name: str, words: Sequence[str], *, multirun: bool = False) -> ComposedConfig:
    """Compose conf/<name>.yaml with overrides. A sweep is asked for by `multirun`, or by a study. Raises ConfigError,
    HydraException and OmegaConfBaseException."""
    check_choices(words)

    def load(sweep: bool) -> DictConfig:
        return config_loader().load_configuration(name, list(words), RunMode.MULTIRUN if sweep else RunMode.RUN)

    expected = multirun or any(word.startswith("study=") for word in words)
    cfg = load(expected)
    sweep = multirun or cfg.hydra.mode == RunMode.MULTIRUN
    if sweep != expected:
        cfg = load(sweep)
    note = fit(cfg, words, config_loader())
    cfg.hydra.mode = RunMode.MULTIRUN if sweep else RunMode.RUN
    HydraConfig.instance().set_config(cfg)  # the name of a run refers to its choices
    return ComposedConfig(cfg, note)


def is_sweep(cfg: DictConfig) -> bool:
    """Whether a composed config asks for a sweep."""
    return bool(cfg.hydra.mode == RunMode.MULTIRUN)


def check_hydra_keys(cfg: DictConfig) -> None:
    """Raise ConfigError for a key of Hydra that nothing reads."""
    for word in cfg.hydra.overrides.hydra:
        key = word.lstrip("+~").partition("=")[0]
        if not key.startswith((*READ, *CHECKED_LATER, *OF_LIGHTNING)):
            raise ConfigError(f"{key} is not supported; the supported keys of Hydra are: {', '.join(READ)}")


def format_config(cfg: DictConfig, part: str, package: str | None, resolve: bool) -> str:
    """Write a composed config as YAML: the `part` "job", "hydra" or "all", or the node `package` of it. Raises
    ConfigError for an unknown node."""
    hydra = {"job": (False,), "hydra": (True,), "all": (False, True)}[part]
    whole: Any = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if (key == "hydra") in hydra])
    if package in (None, "_global_"):
        chosen, head = whole, ""
    else:
        chosen, head = OmegaConf.select(whole, str(package)), f"# @package {package}\n"
        if chosen is None:
            raise ConfigError(f"--package={package}: there is no {package} in the config")
    if not OmegaConf.is_config(chosen):
        return f"{chosen}\n"
    return head + OmegaConf.to_yaml(chosen, resolve=resolve)
