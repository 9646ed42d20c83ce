"""Run jobs of a sweep as jobs of a SLURM cluster; submitit handles submission, preemption and time limits."""

import os
import time
from pathlib import Path
from shutil import which
from typing import Any, Self

from vitlab.errors import ConfigError, StorageError
from vitlab.ranges import Count, Natural, Positive
from vitlab.sweeps.engine import Work
from vitlab.sweeps.folder import STOP, SweepFolder
from vitlab.sweeps.remote import Supervisor, with_src

PAUSE = 0.2  # seconds between two looks at what submitit knows
MOST_TIMEOUTS = 1_000_000  # a job that ran into its time limit is put into the queue again, however often


class Slurm:
    """Submits each job to the queue; one that is preempted, or comes to its time limit, saves its state and is put into
    the queue again, also when the sweeper is gone.

    At most `slots` jobs are in the queue at once. `cluster` is slurm, or local: processes of this machine, to try it.
    `timeout_min` minutes are the time limit of a job, `mem_gb` its memory, and `sbatch` any other options of sbatch, by
    their names. All machines see the sweep's folder and this checkout at the same place.
    """

    def __init__(
        self,
        *,
        slots: Count,
        cluster: str,
        partition: str | None,
        timeout_min: Count,
        gpus_per_node: Natural,
        cpus_per_task: Count,
        mem_gb: Positive | None,
        sbatch: dict[str, Any],
        sweep: Path,
        modules: list[str],
    ):
        for name, value in (("slots", slots), ("timeout_min", timeout_min), ("cpus_per_task", cpus_per_task)):
            if value < 1:
                raise ValueError(f"{name} {value} is not at least 1")
        if cluster not in ("slurm", "local"):
            raise ValueError(f"cluster {cluster} is not one of: slurm, local")
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise ConfigError("engine=submitit needs the package submitit: pip install submitit") from error
        if cluster == "slurm" and which("sbatch") is None:
            raise ConfigError("engine=submitit: there is no sbatch here; start the sweep where SLURM takes jobs")
        self.slots = slots
        self.threads = cpus_per_task
        self.sweep = SweepFolder(sweep)
        self.jobs: dict[str, Any] = {}
        options = {f"{cluster}_max_num_timeout": MOST_TIMEOUTS}
        self.executor = submitit.AutoExecutor(folder=sweep / "submitit" / "%j", cluster=cluster, **options)
        self.executor.update_parameters(
            name=sweep.name,
            timeout_min=timeout_min,
            gpus_per_node=gpus_per_node,
            cpus_per_task=cpus_per_task,
            slurm_partition=partition,
            slurm_additional_parameters=sbatch,
            **({"mem_gb": mem_gb} if mem_gb else {}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """End the jobs; some are left only if something went wrong here."""
        for name in list(self.jobs):
            self.cancel(name)

    @property
    def free(self) -> int:
        return self.slots - len(self.jobs)

    def submit(self, work: Work) -> None:
        (self.sweep.home(work.name) / STOP).unlink(missing_ok=True)
        os.environ["PYTHONPATH"] = with_src(dict(os.environ))  # which sbatch hands on
        supervisor = Supervisor(self.sweep.path, work.name, work.command, self.threads, {})
        try:
            self.jobs[work.name] = self.executor.submit(supervisor)
        except Exception as error:  # whatever sbatch raises
            raise StorageError(f"SLURM does not take the job {work.name}: {error}") from error

    def poll(self, seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        while True:
            ended = [name for name, job in self.jobs.items() if job.done()]
            for name in ended:
                del self.jobs[name]
            if ended or time.monotonic() > deadline:
                return ended
            time.sleep(PAUSE)

    def cancel(self, name: str) -> None:
        """Ask the supervisor of a job to end it; one that is still in the queue is taken out of it."""
        (self.sweep.home(name) / STOP).touch()
        if self.sweep.state(name).status != "running":
            self.jobs[name].cancel(check=False)
