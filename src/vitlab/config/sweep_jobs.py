"""Compose and check the jobs of a sweep before the first one starts, in the form in which they are kept on disk."""

import json
import pickle
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from vitlab.config.annotations import check_names
from vitlab.config.build import import_target
from vitlab.config.job import Job
from vitlab.config.keys import WEIGHTS, check_keys, check_needed, check_nodes
from vitlab.config.nodes import convert_unresolved, flatten, remove_keys
from vitlab.config.recipe import fit
from vitlab.config.redaction import Redaction, is_secret, reads_environment
from vitlab.config.stored_config import OF_A_SWEEP, make_portable
from vitlab.config.trainer_values import check_precision, check_trainer
from vitlab.config.values import quote_text
from vitlab.errors import CheckpointError, ConfigError, format_error

LONG_NUMBER = re.compile(r"\d+\.\d{6,}(e[+-]?\d+)?")


@dataclass(frozen=True)
class ComposedJob:
    """A job: its folder in the sweep's, its overrides and group choices, the metric of its score, and its config, all
    without secrets. `note` is for the user."""

    name: str
    overrides: list[str]
    choices: dict[str, str]
    monitor: str
    config: dict[str, Any]
    note: str


class Composer:
    """Composes the jobs of the sweep whose config is `master`. Files are read once for each choice of groups: editing
    one while the sweep runs changes no job, and a job costs a fifth of a full composition."""

    def __init__(self, master: DictConfig, loader: ConfigLoader):
        self.master = master
        self.loader = loader
        self.groups = set(loader.list_groups(""))
        self.bases: dict[tuple[str, ...], tuple[bytes, str]] = {}

    def __call__(self, number: int, same: Sequence[str], own: Sequence[str]) -> ComposedJob:
        """Compose a job from the overrides of all jobs and its own, which give it its name. Raises what the job itself
        would be refused for: unknown keys, and values of the wrong kind."""
        words = [*same, *own]
        cfg, note = self._compose(same, own)
        with open_dict(cfg), read_write(cfg):
            cfg.hydra.job.id = cfg.hydra.job.num = number
            cfg.hydra.overrides.task = words
            cfg.hydra.job.override_dirname = "_".join(sorted(map(shorten_number, own))).replace("=", "-")
        HydraConfig.instance().set_config(cfg)
        return freeze_job(cfg, words, note)

    def _compose(self, same: Sequence[str], own: Sequence[str]) -> tuple[DictConfig, str]:
        given = OverridesParser.create(config_loader=self.loader).parse_overrides(list(own))
        values = [one for one in given if one.type == OverrideType.CHANGE and one.key_or_group not in self.groups]
        words = (*same, *(str(one.input_line) for one in given if one not in values))
        if words not in self.bases:
            base = self.loader.load_sweep_config(self.master, list(words))
            note = fit(base, words, self.loader)
            self.bases[words] = pickle.dumps(base), note
        content, note = self.bases[words]
        cfg: DictConfig = pickle.loads(content)  # OmegaConf's own copies take seven times as long
        for one in values:
            try:
                OmegaConf.update(cfg, one.key_or_group, one.value(), merge=True)
            except OmegaConfBaseException as error:
                raise ConfigCompositionException(f"Could not override '{one.key_or_group}'.") from error
        return cfg, note


def freeze_job(cfg: DictConfig, overrides: list[str], note: str) -> ComposedJob:
    """Collect what is kept of a composed job."""
    job, own = Job.current(), remove_keys(cfg, ("hydra",))
    check_keys(own, "train")  # also where the config of a user starts from ours
    check_nodes(own)
    check_needed(own, [one.key_or_group for one in job.parse_overrides()])
    check_added(own, overrides)
    check_trainer(own.trainer)
    check_precision(own.trainer.precision)
    config = {key: value for key, value in make_portable(own).items() if key not in OF_A_SWEEP} | {"break_lock": False}
    kept = Redaction(own)
    name, monitor = str(cfg.hydra.sweep.subdir), str(own.monitor)
    return ComposedJob(name, kept(overrides), job.choices, monitor, kept(config), note)


def check_added(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise ConfigError for a key added by a plus that its node's constructor does not take. Hydra has checked all
    others."""
    for key in (one.lstrip("+").partition("=")[0] for one in overrides if one.startswith("+")):
        place = key.rpartition(".")[0]
        while place and "_target_" not in (OmegaConf.select(cfg, place) or ()):
            place = place.rpartition(".")[0]
        if place not in ("", "trainer"):  # `check_nodes` checks the trainer's keys
            target = import_target(OmegaConf.select(cfg, place)["_target_"], place)
            names = [name for name in OmegaConf.select(cfg, place) if name not in WEIGHTS]
            check_names(target, names, place)


def select_job_overrides(overrides: Iterable[Override]) -> list[Override]:
    """Keep the overrides that say what jobs compute. Raises ConfigError where another one varies."""
    kept = []
    for one in overrides:
        if one.key_or_group.partition(".")[0] not in (*OF_A_SWEEP, "break_lock"):
            kept.append(one)
        elif one.is_sweep_override():
            raise ConfigError(
                f"{one.input_line}: all jobs of a sweep share one {one.key_or_group}; give a single value"
            )
    return kept


def describe_request(master: DictConfig, **more: Any) -> dict[str, Any]:
    """Give what a sweep is asked to do, for its file: the config that all jobs start from, and `more`, without
    secrets."""
    own = remove_keys(master, ("hydra",))
    config = convert_unresolved(remove_keys(own, (*OF_A_SWEEP, "break_lock")))
    asked: dict[str, Any] = Redaction(own)({"config": config, **more})
    return asked


def format_yaml(config: dict[str, Any]) -> bytes:
    return OmegaConf.to_yaml(OmegaConf.create(config)).encode("utf-8")


def secret_words(master: DictConfig) -> list[str]:
    """List overrides by which each job reads from its environment what is not kept on disk. Raises ConfigError for a
    secret that stands in the config itself."""
    own = remove_keys(master, ("hydra",))
    kept = Redaction(own)
    words = []
    for key, text in flatten(convert_unresolved(own)):
        if not isinstance(text, str):
            continue
        if reads_environment(text):
            words.append(f"++{key}={quote_text(text)}")
        elif kept.text(text) != text or is_secret(key):
            raise ConfigError(
                f"{key} is a secret, but the jobs of a sweep are stored on disk; put it into the environment, and set "
                f"'{key}=${{oc.env:NAME}}'"
            )
    return words


def shorten_number(word: str) -> str:
    """Shorten a word of a name: a number with many digits to its first four significant ones."""
    return LONG_NUMBER.sub(lambda found: f"{float(found[0]):.4g}", word)


def read_frozen_run(home: Path) -> dict[str, Any]:
    """Give what is kept of a sweep's job whose run has saved no state yet, in the form of a checkpoint. Raises
    CheckpointError where it is damaged."""
    try:
        job = json.loads((home / "job.json").read_bytes())
        config = OmegaConf.to_container(OmegaConf.load(home / "config.yaml"), resolve=False)
        if "model" not in (config or ()):
            raise ValueError("config.yaml has no model")
        words = list(map(str, job["overrides"]))
        return {"run": {"config": config, "choices": dict(job["choices"]), "id": str(job["run_id"]), "words": words}}
    except (OSError, ValueError, TypeError, LookupError, YAMLError) as error:
        raise CheckpointError(f"the config of the sweep's job in {home} is damaged: {format_error(error)}") from error
