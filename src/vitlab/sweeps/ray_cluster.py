"""Run jobs of a sweep as tasks of a Ray cluster: on many machines, with GPUs in fractions.

Moritz et al., 2018, arXiv:1712.05889.
"""

import os
import time
from pathlib import Path
from typing import Any, Self

from vitlab.errors import ConfigError
from vitlab.ranges import Natural, Positive, Unsigned
from vitlab.sweeps.engine import Work
from vitlab.sweeps.folder import STOP, SweepFolder
from vitlab.sweeps.remote import Supervisor, prepend_src

PASSED_ON = ("VITLAB_", "WANDB_", "HF_")  # prefixes of the environment variables that jobs inherit
OBJECT_STORE = 80 * 2**20  # bytes for Ray's objects, which a sweep does not use; Ray demands at least 75 MiB


class RayCluster:
    """Runs each job as a Ray task, which starts the job's command as a process of its own. If a machine is lost, its
    tasks run again on another one, at most `retries` times, and resume their jobs from the last checkpoint.

    `address` is the address of a running cluster, or auto for one on this machine; null starts one for this sweep.
    Each job has `cpus` and `gpus`; with 0.5 GPUs two jobs share one. All machines must see the sweep's folder and this
    checkout under the same paths.
    """

    def __init__(
        self,
        *,
        address: str | None,
        cpus: Positive,
        gpus: Unsigned,
        retries: Natural,
        sweep: Path,
        modules: list[str],
    ):
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            import ray
        except ModuleNotFoundError as error:
            raise ConfigError("engine=ray needs the package ray: pip install ray") from error
        self.ray = ray
        self.address = address
        self.cpus, self.gpus, self.retries = cpus, gpus, retries
        self.sweep = SweepFolder(sweep)
        self.jobs: dict[Any, str] = {}  # job names by the references of their tasks

    def __enter__(self) -> Self:
        options = {"object_store_memory": OBJECT_STORE, "include_dashboard": False} if self.address is None else {}
        environment = {"env_vars": {"PYTHONPATH": prepend_src(os.environ)}}
        try:
            self.ray.init(self.address, logging_level="ERROR", log_to_driver=False, runtime_env=environment, **options)
        except ConnectionError as error:
            raise ConfigError(f"engine.address {self.address}: no Ray cluster answers there: {error}") from error
        if not self._count_slots():
            found = {name: number for name, number in self.ray.cluster_resources().items() if name in ("CPU", "GPU")}
            self.ray.shutdown()
            raise ConfigError(f"a job needs {self.cpus:g} CPUs and {self.gpus:g} GPUs, but the cluster has {found}")
        resources = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries}
        self.task = self.ray.remote(**resources)(supervise)
        return self

    def __exit__(self, *raised: object) -> None:
        """End the jobs that are left after an error."""
        for name in list(self.jobs.values()):
            self.cancel(name)
        self.ray.shutdown()

    @property
    def free(self) -> int:
        return self._count_slots() - len(self.jobs)

    def submit(self, work: Work) -> None:
        (self.sweep.home(work.name) / STOP).unlink(missing_ok=True)
        own = {key: value for key, value in os.environ.items() if key.startswith(PASSED_ON)}
        supervisor = Supervisor(self.sweep.path, work.name, work.command, max(1, int(self.cpus)), own)
        self.jobs[self.task.options(name=work.name).remote(supervisor)] = work.name

    def poll(self, seconds: float) -> list[str]:
        if not self.jobs:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=seconds)
        return [self.jobs.pop(one) for one in ready]

    def cancel(self, name: str) -> None:
        """Ask the supervisor of a job to end it; a job that still waits for a machine does not start."""
        (self.sweep.home(name) / STOP).touch()
        for task, job in self.jobs.items():
            if job == name and self.sweep.state(name).status != "running":
                self.ray.cancel(task)

    def _count_slots(self) -> int:
        """Count the jobs that the cluster can run at once now."""
        found = self.ray.cluster_resources()
        most = found.get("CPU", 0) / self.cpus
        return int(min(most, found.get("GPU", 0) / self.gpus) if self.gpus else most)


def supervise(supervisor: Supervisor) -> None:
    supervisor()
