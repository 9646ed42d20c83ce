"""Turn what other libraries raise about a user's input into one sentence: Hydra, OmegaConf, YAML, the disk."""

import errno
import os
import re
import signal
from collections.abc import Iterable

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import YAMLError

from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.usual_words import suggest_key
from vitlab.errors import ConfigError, StorageError, VitlabError, format_error
from vitlab.lost_worker import explain_lost_worker
from vitlab.out_of_memory import is_out_of_memory
from vitlab.spelling import suggest_name

MISSING = re.compile(r"Missing mandatory value: ([\w.]+)")
STORAGE = {  # what a disk, or somebody else at work on it, does to files
    *(errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG),
    *(errno.EEXIST, errno.EISDIR, errno.ENOENT, errno.EIO, errno.EFBIG, errno.ENOTEMPTY, errno.ELOOP, errno.ESTALE),
}
WHERE = re.compile(r"In '([^']*)': ")  # the file that Hydra was reading
NOT_THERE = re.compile(r"Could not (?:override|delete)(?: from config\.)? '([^']*)'")
PARAMS = "hydra.sweeper.params"
DECIMAL = re.compile(r"[^=]+=-?\d+,\d+")  # a number with a decimal comma
ELSEWHERE = re.compile(r"(vit|deit3?)[-_]?(tiny|small|base|large|huge|giant|ti|s|b|l|h|g)[-_/]?(?:patch)?(\d+)(?!\d).*")
ADVICE = re.compile(r"\n(See https|To append|Config search path|Either remove|Did you mean).*", re.DOTALL)


def translate_refusal(error: Exception) -> VitlabError | None:
    """Translate an error. Ours stay as they are; a full disk or a missing permission becomes StorageError, a data
    worker that died DataError (torch reports it wherever the run is at that moment), another process of the run that is
    gone DistributedError, what Hydra, OmegaConf and YAML refuse, and a lack of memory, ConfigError. None for a bug."""
    if isinstance(error, VitlabError):
        sentence = str(error).strip().split("\n")[-1]  # a worker's error comes with its traceback before it
        refusal = type(error)(sentence.removeprefix(f"{type(error).__module__}.{type(error).__name__}: "))
        refusal.status = error.status
        return refusal
    if isinstance(error, HydraException):
        return ConfigError(explain_hydra_error(error))
    if isinstance(error, OmegaConfBaseException):
        return ConfigError(explain_omegaconf_error(error))
    if isinstance(error, YAMLError):
        return ConfigError(f"a YAML cannot be read: {format_error(error)}")
    if isinstance(error, OSError) and error.errno in STORAGE:
        return StorageError(f"cannot use {error.filename or 'the disk'}: {os.strerror(error.errno)}")
    if isinstance(error, RuntimeError):
        from vitlab.distributed.lost_process import make_lost_error  # brings torch, which the run has loaded by then

        if trouble := explain_lost_worker(error) or make_lost_error(error):
            return trouble
    if is_out_of_memory(error):
        reason = str(error).strip().split("\n")[-1] or type(error).__name__
        return ConfigError(f"memory ran out ({reason}); take fewer images at once, smaller ones, or a smaller model")
    return None


def find_status(error: BaseException) -> int:
    """Return the exit status with which a command ends by this error."""
    if isinstance(error, SystemExit):
        return find_signal(error) or (error.code if isinstance(error.code, int) else 1)
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    refusal = translate_refusal(error) if isinstance(error, Exception) else None
    return refusal.status if refusal is not None else 1


def find_signal(stop: SystemExit) -> int | None:
    """Return the exit status of a signal outside of training, where Lightning leaves with 0 or 1; None for another
    stop."""
    if type(stop).__name__ == "SIGTERMException":
        return 128 + signal.SIGTERM
    return 128 + signal.SIGINT if isinstance(stop.__context__, KeyboardInterrupt) else None


def explain_hydra_error(error: HydraException) -> str:
    """Say what Hydra refuses, with the nearest name that exists."""
    message = str(error)
    where = WHERE.match(message)
    place = f"{where[1]}: " if where and "/" in where[1] else ""  # for a choice on the command line no file is named
    if isinstance(error, MissingConfigException):
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return place + (explain_option(group, option, error.options) if group else f"there is no config {option}")
    if isinstance(error, OverrideParseException) and "=" not in str(error.override):
        return f"cannot read {error.override!r}; an override is KEY=VALUE, and --help lists the keys"
    if isinstance(error, OverrideParseException):
        return (
            f"cannot read {error.override!r} ({format_error(ADVICE.sub('', message))}); an override is KEY=VALUE, and "
            "a VALUE with other characters than letters, digits and -_./ is quoted twice: 'KEY=\"VALUE\"'"
        )
    absent = NOT_THERE.search(message)
    if absent and isinstance(error, ConfigCompositionException):
        return place + explain_key(absent[1], error.__cause__)
    if "Could not append to config" in message:
        key = message.split("'")[1]
        return f"{key} is there already; leave out the plus: {key}=VALUE"
    if "Ambiguous value" in message or "requires --multirun" in message:
        word = message.split("'")[1]
        decimal = f", for a decimal number type {word.replace(',', '.')}" if DECIMAL.fullmatch(word) else ""
        return f"{word} holds several values; for a sweep add -m, for a list type KEY=[...]{decimal}"
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return place + explain_key(str(cause.full_key), cause)
    if isinstance(cause, OmegaConfBaseException):
        return ": ".join(filter(None, [format_error(ADVICE.sub("", message)), explain_omegaconf_error(cause)]))
    return format_error(ADVICE.sub("", message))


def explain_option(group: str, option: str, known: Iterable[str] | None = None) -> str:
    """Refuse an option that its group does not have."""
    options = [name for name in known or list_group_options(group) if not name.startswith("_")]
    if group.startswith("model") and (found := ELSEWHERE.fullmatch(option.lower())):
        family, size, patch = found.groups()
        own = f"{family}_{'ti' if size == 'tiny' else size if size == 'ti' else size[0]}{patch}"
        weights = f" with model.pretrained=timm:{option}" if "_patch" in option else ""
        if own in options:
            return f"there is no {group}={option}; did you mean {own}{weights}?"
    return f"there is no {group}={option}{suggest_name(option, options)}"


def list_group_options(group: str) -> list[str]:
    return [file.stem for root in (CONF, EXPERIMENTS) for file in (root / group).glob("*.yaml")]


def explain_key(key: str, cause: BaseException | None) -> str:
    """Refuse a key that no chosen option has, or a group that does not exist."""
    if not isinstance(cause, ConfigKeyError | ConfigAttributeError):
        groups = [path.name for root in (CONF, EXPERIMENTS) for path in root.iterdir() if path.is_dir()]
        if key in groups:
            return f"this command takes no {key}; leave it out"
        return f"there is no key {key}{suggest_key(key, groups) if '.' not in key else ''}"
    if key.startswith(PARAMS):
        return f"{PARAMS} can be set only in the YAML of a study; on the command line, type KEY=A,B"
    parent, _, name = str(cause.full_key).rpartition(".")
    if (CONF / parent / f"{name}.yaml").is_file():
        return explain_choice(parent, name)
    known = [str(one) for one in cause.parent_node or () if one != "hydra"]
    if not known:
        return f"there is no key {key}: {parent} holds a value"
    adding = f"; to add a new key, type +{key}=VALUE" if parent else ""
    return f"there is no key {key}{suggest_key(name, known, f'{parent}.' if parent else '') or adding}"


def explain_choice(group: str, option: str) -> str:
    return f"{group}.{option} is not among the chosen {group}; add it: {group}=[default,{option}]"


def explain_omegaconf_error(error: OmegaConfBaseException) -> str:
    """Say what OmegaConf refuses: a key without a value, a reference that cannot be resolved, a wrong type."""
    missing = MISSING.search(str(error))
    if missing or isinstance(error, MissingMandatoryValue):
        key = missing[1] if missing and not isinstance(error, MissingMandatoryValue) else error.full_key
        return f"{key} has no value; set {'run=latest, or run=FOLDER' if key == 'run' else f'{key}=...'}"
    if isinstance(error, InterpolationResolutionError):
        return f"{error.full_key or 'a key'} refers to a value that does not exist: {get_first_line(error)}"
    return f"{error.full_key}: {get_first_line(error)}" if error.full_key else get_first_line(error)


def get_first_line(error: BaseException) -> str:
    """Give the first line of an error's message, or at least its kind."""
    return str(error).strip().split("\n")[0] or type(error).__name__
