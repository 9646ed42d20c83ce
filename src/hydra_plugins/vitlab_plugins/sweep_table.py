"""Rewrite the tables of a sweep when one of its jobs was resumed by hand."""

import os
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from vitlab.checkpoints.run_folder import frozen_job
from vitlab.distributed.environment import other_rank
from vitlab.sweeps.attempt import SUPERVISED
from vitlab.sweeps.results import note_by_hand


class SweepTable(Callback):
    """After resume= of a job's run, puts its outcome into the sweep's tables. For a job that the sweep itself has
    started, its supervisor does that."""

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        folder = Path(config.hydra.runtime.output_dir)
        if frozen_job(folder) and SUPERVISED not in os.environ and not other_rank():
            note_by_hand(folder)
