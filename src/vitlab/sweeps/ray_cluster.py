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
from vitlab.sweeps.remote import Supervisor, with_src

HANDED_ON = ("VITLAB_", "WANDB_", "HF_")  # variables of the sweeper's environment that its jobs see too
OBJECTS = (
    80 * 2**20
)  # bytes of shared memory for Ray's objects, of which a sweep has none; the least it takes is 75 MiB


class RayCluster:
    """Gives each job to Ray as a task, which starts the job's command as a process of its own. A task whose machine is
    lost runs again on another one, `retries` times, and goes on with the job where it was saved.

    `address` is that of a cluster that runs, auto for one on this machine, and null starts one here, for this sweep. A
    job has so many `cpus` and `gpus`, of which 0.5 lets two share one. All machines see the sweep's folder and this
    checkout at the same place.
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
        for name, value, least in (("gpus", gpus, 0), ("retries", retries, 0)):
            if value < least:
                raise ValueError(f"{name} {value} is not at least {least}")
        if cpus <= 0:
            raise ValueError(f"cpus {cpus} is not above 0")
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
        own = {"object_store_memory": OBJECTS, "include_dashboard": False} if self.address is None else {}
        environment = {"env_vars": {"PYTHONPATH": with_src(dict(os.environ))}}
        try:
            self.ray.init(self.address, logging_level="ERROR", log_to_driver=False, runtime_env=environment, **own)
        except ConnectionError as error:
            raise ConfigError(f"engine.address {self.address}: there is no Ray cluster: {error}") from error
        if not self._most():
            found = {name: number for name, number in self.ray.cluster_resources().items() if name in ("CPU", "GPU")}
            self.ray.shutdown()
            raise ConfigError(f"a job asks for {self.cpus:g} CPUs and {self.gpus:g} GPUs, and the cluster has {found}")
        options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries}
        self.task = self.ray.remote(**options)(supervise)
        return self

    def __exit__(self, *raised: object) -> None:
        """End the jobs; some are left only if something went wrong here."""
        for name in list(self.jobs.values()):
            self.cancel(name)
        self.ray.shutdown()

    @property
    def free(self) -> int:
        return self._most() - len(self.jobs)

    def submit(self, work: Work) -> None:
        (self.sweep.home(work.name) / STOP).unlink(missing_ok=True)
        own = {key: value for key, value in os.environ.items() if key.startswith(HANDED_ON)}
        supervisor = Supervisor(self.sweep.path, work.name, work.command, max(1, int(self.cpus)), own)
        self.jobs[self.task.options(name=work.name).remote(supervisor)] = work.name

    def poll(self, seconds: float) -> list[str]:
        if not self.jobs:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=seconds)
        return [self.jobs.pop(one) for one in ready]

    def cancel(self, name: str) -> None:
        """Ask the supervisor of a job to end it; one that waits for a machine does not start."""
        (self.sweep.home(name) / STOP).touch()
        for task, job in self.jobs.items():
            if job == name and self.sweep.state(name).status != "running":
                self.ray.cancel(task)

    def _most(self) -> int:
        """Count the jobs that the cluster can hold at this moment."""
        found = self.ray.cluster_resources()
        most = found.get("CPU", 0) / self.cpus
        return int(min(most, found.get("GPU", 0) / self.gpus) if self.gpus else most)


def supervise(supervisor: Supervisor) -> None:
    supervisor()
