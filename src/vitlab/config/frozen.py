"""The jobs of a sweep, composed and checked before the first of them starts, as they are kept on disk."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import isclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override, Quote, QuotedString
from omegaconf import DictConfig, OmegaConf, open_dict

from vitlab.config.annotations import check_names, dotted
from vitlab.config.build import called
from vitlab.config.job import Job
from vitlab.config.keys import WEIGHTS, check_keys, check_nodes
from vitlab.config.recipe import settle
from vitlab.config.redaction import Redaction, of_the_environment
from vitlab.config.references import check_references
from vitlab.config.stored_config import OF_THE_MACHINE, portable

OF_A_SWEEP = ("sweep", "engine")  # keys that say how a sweep is run, not what a run computes


@dataclass(frozen=True)
class Frozen:
    """A job: its folder in the sweep's, its overrides and group choices, the metric of its score, and its config, all
    without secrets. `told` is for the user."""

    name: str
    overrides: list[str]
    choices: dict[str, str]
    monitor: str
    config: dict[str, Any]
    told: str | None


def frozen(
    master: DictConfig, loader: ConfigLoader, overrides: Sequence[str], number: int, same: Sequence[str]
) -> Frozen:
    """Compose a job of the sweep whose config is `master`. Its name leaves out the keys that are the `same` in all
    jobs. Raises what it would be refused for, of its keys and their kinds."""
    naming = f"hydra.job.config.override_dirname.exclude_keys={list(same)}"
    cfg = loader.load_sweep_config(master, [*overrides, naming])
    with open_dict(cfg):
        cfg.hydra.job.id = cfg.hydra.job.num = number
    HydraConfig.instance().set_config(cfg)
    job, own = Job.current(), own_keys(cfg)
    told = settle(own, job)
    check_references(own, deep=False)
    check_keys(own, job.config_name)
    check_nodes(own)
    check_added(own, overrides)
    config = without(portable(own, OF_THE_MACHINE), OF_A_SWEEP) | {"break_lock": False}
    kept = Redaction(own)
    name, monitor = str(cfg.hydra.sweep.subdir), str(own.monitor)
    return Frozen(name, kept(list(overrides)), job.choices, monitor, kept(config), told)


def check_added(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise ConfigError for a key that was added by a plus, and that what its node builds does not take. Of all others
    Hydra has seen that they are there."""
    for key in (one.lstrip("+").partition("=")[0] for one in overrides if one.startswith("+")):
        place = key.rpartition(".")[0]
        while place and "_target_" not in (OmegaConf.select(cfg, place) or ()):
            place = place.rpartition(".")[0]
        if place:
            target = called(OmegaConf.select(cfg, place)["_target_"], place)
            names = [name for name in OmegaConf.select(cfg, place) if name not in WEIGHTS]
            check_names(target, target.__init__ if isclass(target) else target, names, place)


def of_the_jobs(overrides: Iterable[Override]) -> list[Override]:
    """The overrides that say what jobs compute."""
    return [one for one in overrides if one.key_or_group.partition(".")[0] not in (*OF_A_SWEEP, "break_lock")]


def asked_for(master: DictConfig, **more: Any) -> dict[str, Any]:
    """What a sweep is asked to do, as it is written: the config that all its jobs start from, and `more`, all without
    secrets."""
    own = own_keys(master)
    written = OmegaConf.to_container(own, resolve=False)
    assert isinstance(written, dict)
    return Redaction(own)({"config": without(written, (*OF_A_SWEEP, "break_lock")), **more})


def as_yaml(config: dict[str, Any]) -> bytes:
    return OmegaConf.to_yaml(OmegaConf.create(config)).encode("utf-8")


def secret_words(master: DictConfig) -> list[str]:
    """Overrides for each job with what is not kept on disk."""
    own = own_keys(master)
    written = OmegaConf.to_container(own, resolve=False)
    kept = texts(Redaction(own)(written))
    found = [key for key, text in texts(written).items() if kept[key] != text or of_the_environment(text)]
    values = {key: OmegaConf.select(own, key) for key in found}
    return [f"++{key}={quoted(value)}" for key, value in values.items() if isinstance(value, str)]


def own_keys(cfg: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


def without(node: dict[Any, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {str(key): value for key, value in node.items() if key not in keys}


def texts(value: Any, key: str = "") -> dict[str, str]:
    """The texts below a node of plain types, by their keys."""
    if isinstance(value, dict):
        return {k: v for name, inner in value.items() for k, v in texts(inner, dotted(key, name)).items()}
    return {key: value} if isinstance(value, str) else {}


def quoted(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()
