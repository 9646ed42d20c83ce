"""A Hydra job as a command: what goes wrong becomes one sentence and an exit status."""

import errno
import functools
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from vitlab.errors import ConfigError, StorageError, VitlabError
from vitlab.out_of_memory import ran_out
from vitlab.run.job import Job
from vitlab.run.recipe import settle

NOISE = (  # what Lightning says to everybody, and nobody can act on
    ".*LeafSpec.* is deprecated",
    "The number of training batches .* is smaller than the logging interval",  # the end of an epoch is logged too
    "The '.*' does not have many workers",
    "Starting from v1.9.0, `tensorboardX`",
    ".*treespec.*",
    "Found .* module.* in eval mode at the start of training",  # parts that do not learn
    "It is recommended to use `self.log",  # with sync_dist: what is logged is the same on every rank
)
MISSING = re.compile(r"Missing mandatory value: ([\w.]+)")
STORAGE = {errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR}


def command(task: Callable[[DictConfig], Any]) -> Callable[[DictConfig], Any]:
    """Turn refusals into a sentence on stderr and their exit status. In a multirun they are raised: the sweep goes on,
    and ends with status 1."""

    @functools.wraps(task)
    def run(cfg: DictConfig) -> Any:
        for message in NOISE:
            warnings.filterwarnings("ignore", message)
        try:
            settle(cfg, Job.current())
            return task(cfg)
        except SystemExit as stop:  # Lightning leaves with 0 or 1 when a signal comes outside of training
            if type(stop).__name__ == "SIGTERMException":
                sys.exit(128 + signal.SIGTERM)
            if isinstance(stop.__context__, KeyboardInterrupt):
                sys.exit(128 + signal.SIGINT)
            raise
        except (VitlabError, OmegaConfBaseException, OSError, RuntimeError, MemoryError) as error:
            refusal = as_refusal(error)
            if refusal is None:
                raise
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise refusal from error
            sys.stdout.flush()
            print(f"\n{type(refusal).__name__}: {refusal}", file=sys.stderr, flush=True)
            sys.exit(refusal.status)

    return run


def as_refusal(error: Exception) -> VitlabError | None:
    """Our own errors as they are; a full disk or a missing permission as StorageError; a data worker that died, which
    torch tells wherever the run is at that moment, as DataError; a key without a value and a lack of memory as
    ConfigError; None for what is a bug."""
    if isinstance(error, VitlabError):
        sentence = str(error).strip().split("\n")[-1]  # a worker's error comes with its traceback before it
        return type(error)(sentence.removeprefix(f"{type(error).__module__}.{type(error).__name__}: "))
    if isinstance(error, OmegaConfBaseException):
        missing = MISSING.search(str(error))
        if missing is None and isinstance(error, MissingMandatoryValue):
            missing = MISSING.search(f"Missing mandatory value: {error.full_key}")
        return ConfigError(f"{missing[1]} has no value; set {missing[1]}=...") if missing else None
    if isinstance(error, OSError) and error.errno in STORAGE:
        return StorageError(f"cannot use {error.filename or 'the disk'}: {os.strerror(error.errno)}")
    if isinstance(error, RuntimeError):
        from vitlab.data.loader import worker_trouble  # brings torch, which the run has loaded by then

        if (trouble := worker_trouble(error)) is not None:
            return trouble
    if ran_out(error):
        reason = str(error).strip().split("\n")[-1] or type(error).__name__
        return ConfigError(f"memory ran out ({reason}); take fewer images at once, smaller ones, or a smaller model")
    return None
