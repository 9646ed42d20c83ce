"""The loggers of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl

from vitlab.config.build import build, plain
from vitlab.distributed.launcher import need_no_others
from vitlab.loggers import MetricsCSV, WeightsAndBiases
from vitlab.run.start import Start


def build_loggers(start: Start) -> list[pl.loggers.Logger]:
    """metrics.csv always, and those of the config, which are told what may be `kept` of it."""
    cfg, folder, sweep = start.cfg, start.folder, start.job.sweep
    loggers: list[pl.loggers.Logger] = [MetricsCSV(folder=str(folder), first_step=start.first_step)]
    group = str(sweep.relative_to(sweep.parents[1])) if sweep else None
    place = {"folder": str(folder), "name": f"{cfg.name}/{folder.name}", "group": group, "run_id": start.run_id}
    for key, node in cfg.logger.items():
        told = {"run_config": start.kept(plain(cfg)), "arguments": start.kept(start.job.overrides)}
        loggers.append(build(node, f"logger.{key}", **place, **told))
    return loggers


@contextmanager
def closing_loggers(trainer: pl.Trainer) -> Iterator[None]:
    """W&B is told how the run ended, whatever it did."""
    exit_code = 1
    try:
        yield
        exit_code = 0
    finally:
        need_no_others(trainer)
        for logger in trainer.loggers:
            if isinstance(logger, WeightsAndBiases):
                logger.close(exit_code)
