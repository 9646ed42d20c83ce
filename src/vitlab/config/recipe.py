"""What a recipe or study states of a part goes with the option it chose: who chooses another gets that one's values."""

from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from vitlab.config.home import CONF
from vitlab.config.job import Job
from vitlab.config.refusals import hydra_sentence
from vitlab.errors import ConfigError

LAYERS = ("recipe", "study")  # groups whose values are merged over those of the options
WHOLE = ("crop", "augmentation", "mixing", "resolution", "loss", "task", "optimizer", "schedule")
MODELS = ("model", "model@teacher")  # of which the sizes that an option states go together, and the rest stays
OF_A_SIZE = {"mlp_ratio", "mlp_dim", "pretrained"}  # keys of all models that no other size keeps


def settle(cfg: DictConfig, job: Job) -> str | None:
    """Where another option is chosen than the recipe's or study's, take what that option states: Hydra has merged the
    recipe's values over any. The command line's own values hold in any case. Returns what to tell the user of it.

    A model of the same kind keeps what the recipe states beside the new option's own file, as positions and pooling;
    data, trainer and logger keep all, and callbacks go that are no longer chosen. Raises ConfigError for a value on the
    command line that the chosen option does not have, and for two recipes.
    """
    given = OverridesParser.create().parse_overrides(job.overrides)
    for group in LAYERS:
        if any(one.key_or_group == group and isinstance(one.value(), list) for one in given):
            raise ConfigError(f"{group}= takes one, and was given a list; for one after the other use -m {group}=A,B")
    layers = [f"{group}={job.choices[group]}" for group in LAYERS if job.choices.get(group)]
    if not layers:
        return None
    told = None
    usual = composed(job, layers)
    choices = usual.hydra.runtime.choices
    others = [group for group in (*WHOLE, *MODELS) if choices.get(group) != job.choices.get(group)]
    with open_dict(cfg):
        if others:
            own = composed(job, without_layers(job, given, {key_of(group) for group in others}))
            told = left_out(layers, [group for group in others if take(cfg, own, usual, group, job)], job)
            if "model" in others and usual.model.get("pretrained") and not stated_by(given, "model.pretrained"):
                cfg.model.pretrained = f"<weights of {job.choices['model']}, or to null>"  # refused until it is given
        leave_out_callbacks(cfg, given, usual)
    return told


def take(cfg: DictConfig, own: DictConfig, usual: DictConfig, group: str, job: Job) -> bool:
    """Put what `own` has of a group in the place of what `cfg` has; whether values of the recipe were left out."""
    key = key_of(group)
    if key not in own:  # a teacher, and a task without one
        del cfg[key]
        return True
    before = cfg[key].copy()
    file = CONF / "model" / f"{job.choices[group]}.yaml"
    alike = group in MODELS and key in usual and own[key].get("_target_") == usual[key].get("_target_")
    if alike and file.is_file():
        for name in (stated(job.choices[group]) | OF_A_SIZE) & own[key].keys():
            cfg[key][name] = own[key]._get_node(name)
    else:
        cfg[key] = own[key]
    return before != cfg[key]


def leave_out_callbacks(cfg: DictConfig, given: list[Override], usual: DictConfig) -> None:
    """Those that the recipe chooses and states a value of, and that are not chosen now."""
    for name, node in usual.get("callbacks", {}).items():
        left = "_target_" in node and "_target_" not in cfg.callbacks.get(name, "_target_")
        if left and not stated_by(given, f"callbacks.{name}"):
            del cfg.callbacks[name]


def left_out(layers: list[str], groups: list[str], job: Job) -> str | None:
    chosen = ", ".join(f"{group}={job.choices[group]}" for group in groups if group in job.choices)
    return (
        f"{' and '.join(layers)} chose otherwise, so that what it states for these is left out: {chosen}; "
        "the run's config.yaml says what holds"
        if chosen
        else None
    )


def composed(job: Job, overrides: list[str]) -> DictConfig:
    own = HydraConfig.get().overrides.hydra  # where else configs lie
    try:
        return compose(job.config_name, [*own, *overrides], return_hydra_config=True)
    except HydraException as error:
        raise ConfigError(hydra_sentence(error)) from error


def without_layers(job: Job, given: list[Override], keys: set[str]) -> list[str]:
    """The job's choices but for recipe and study, and what the command line states below these keys."""
    choices = [f"{group}={choice}" for group, choice in job.choices.items() if group not in (*LAYERS, "hydra")]
    values = [one.input_line for one in given if states_value(one) and one.key_or_group.partition(".")[0] in keys]
    return [*choices, *(value for value in values if value is not None)]


def states_value(override: Override) -> bool:
    """Whether it is of values, not of a group's option."""
    return "." in override.key_or_group or (not override.is_delete() and isinstance(override.value(), dict))


def stated_by(given: list[Override], key: str) -> bool:
    return any(f"{one.key_or_group}.".startswith(f"{key}.") for one in given)


def key_of(group: str) -> str:
    """Where a group's option stands in the config: model@teacher is `teacher`."""
    name, _, package = group.partition("@")
    return package or name


def stated(model: str) -> set[str]:
    """The keys in a model's own file, and in those it starts from; what all start from, whose name begins with _, is
    left out."""
    node: Any = OmegaConf.load(CONF / "model" / f"{model}.yaml")
    above = [str(default) for default in node.get("defaults", []) if not str(default).startswith("_")]
    keys = {str(key) for key in node if key != "defaults"}
    return keys.union(*(stated(one) for one in above if "@" not in one))
