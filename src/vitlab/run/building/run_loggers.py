"""Build and close the loggers of a run."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl

from vitlab.checkpoints.run_folder import RUNS
from vitlab.config.build import build, import_target
from vitlab.config.nodes import resolve_config
from vitlab.config.refusals import find_status
from vitlab.distributed.launcher import stop_waiting_for_others
from vitlab.distributed.presence import tell_status
from vitlab.loggers import MetricsCSV, RunLogger
from vitlab.run.building.parts import build_callbacks
from vitlab.run.storage.start import Start


def build_loggers(start: Start) -> list[pl.loggers.Logger]:
    """Build metrics.csv, always, and the loggers of the config; they are given the config without secrets."""
    cfg, folder, sweep = start.cfg, start.folder, start.sweep
    loggers: list[pl.loggers.Logger] = [MetricsCSV(folder=str(folder), first_step=start.first_step)]
    for key, node in cfg.logger.items():
        known = {
            "folder": str(folder),
            "name": f"{cfg.name}/{folder.name}",
            "group": str(sweep.relative_to(sweep.parents[1])).removeprefix(f"{RUNS}/") if sweep else None,
            "run_id": start.identity.id,
            "first_step": start.first_step,
            "run_config": start.kept(resolve_config(cfg)),
            "arguments": start.kept(start.job.overrides),
        }
        asked = set(known) & set(inspect.signature(import_target(node._target_, f"logger.{key}")).parameters)
        loggers.append(build(node, f"logger.{key}", **{name: known[name] for name in asked}))
    return loggers


def try_callbacks_and_loggers(start: Start) -> None:
    """Build callbacks and loggers once before the data is opened, which may take long. Raises VitlabError for what
    cannot be built."""
    build_callbacks(start.cfg)
    build_loggers(start)


@contextmanager
def close_loggers(trainer: pl.Trainer) -> Iterator[None]:
    """Tell the services how the run ended, however it did."""
    exit_code = 1
    try:
        yield
        exit_code = 0
    except BaseException as error:
        tell_status(find_status(error))  # closing may take long
        if isinstance(error, SystemExit):  # by a signal
            exit_code = find_status(error)
        raise
    finally:
        stop_waiting_for_others(trainer)
        for logger in trainer.loggers:
            if isinstance(logger, RunLogger):
                logger.close(exit_code)


def uploads(loggers: list[pl.loggers.Logger]) -> dict[str, str]:
    """Give the commands that send to servers what was logged without them."""
    commands = filter(None, (logger.upload_command() for logger in loggers if isinstance(logger, RunLogger)))
    return {"upload": joined} if (joined := " && ".join(commands)) else {}
