"""Run jobs of a sweep as jobs of a SLURM cluster; submitit handles submission, preemption and time limits."""

import os
import time
from pathlib import Path
from shutil import which
from typing import Any, Literal, Self

from vitlab.errors import ConfigError, StorageError
from vitlab.ranges import Count, Natural, Positive
from vitlab.sweeps.engine import Work
from vitlab.sweeps.folder import STOP, SweepFolder
from vitlab.sweeps.remote import Supervisor, prepend_src

POLL_SECONDS = 0.2  # between two questions to submitit
MAX_TIMEOUTS = 1_000_000  # a job that reaches its time limit is requeued, however often


class Slurm:
    """Submits each job to the queue. A job that is preempted or reaches its time limit saves its state and is requeued,
    even when the sweeper has ended.

    At most `slots` jobs are in the queue at once. `cluster` is slurm, or local for processes of this machine.
    A job has a time limit of `timeout_min` minutes and `mem_gb` GB of memory; `sbatch` gives further options of sbatch
    by name. All machines must see the sweep's folder and this checkout under the same paths.
    """

    def __init__(
        self,
        *,
        slots: Count,
        cluster: Literal["slurm", "local"],
        partition: str | None,
        timeout_min: Count,
        gpus_per_node: Natural,
        cpus_per_task: Count,
        mem_gb: Positive | None,
        sbatch: dict[str, Any],
        sweep: Path,
        modules: list[str],
    ):
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise ConfigError("engine=submitit needs the package submitit: pip install submitit") from error
        if cluster == "slurm" and which("sbatch") is None:
            raise ConfigError(
                "engine=submitit: the command sbatch is missing; start the sweep on a machine that submits to SLURM"
            )
        self.slots = slots
        self.threads = cpus_per_task
        self.sweep = SweepFolder(sweep)
        self.jobs: dict[str, Any] = {}
        options = {f"{cluster}_max_num_timeout": MAX_TIMEOUTS}
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
        """End the jobs that are left after an error."""
        for name in list(self.jobs):
            self.cancel(name)

    @property
    def free(self) -> int:
        return self.slots - len(self.jobs)

    def submit(self, work: Work) -> None:
        (self.sweep.home(work.name) / STOP).unlink(missing_ok=True)
        os.environ["PYTHONPATH"] = prepend_src(os.environ)  # sbatch passes it on
        supervisor = Supervisor(self.sweep.path, work.name, work.command, self.threads, {})
        try:
            self.jobs[work.name] = self.executor.submit(supervisor)
        except Exception as error:  # whatever sbatch raises
            raise StorageError(f"SLURM refuses the job {work.name}: {error}") from error

    def poll(self, seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        while True:
            ended = [name for name, job in self.jobs.items() if job.done()]
            for name in ended:
                del self.jobs[name]
            if ended or time.monotonic() > deadline:
                return ended
            time.sleep(POLL_SECONDS)

    def cancel(self, name: str) -> None:
        """Ask the supervisor of a job to end it; a job that is still queued is removed from the queue."""
        (self.sweep.home(name) / STOP).touch()
        if self.sweep.state(name).status != "running":
            self.jobs[name].cancel(check=False)
