"""Divide a machine's cores among the processes of a run."""

import socket
from pathlib import Path

from vitlab.distributed.gathering import gather_from_all_ranks
from vitlab.machine import find_cores

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def find_core_share(processes: int) -> float:
    """Give the cores that this process may use beside the other `processes` of the run on this machine: of each core
    that it may run on, one over how many of them may run on it.

    So a launcher that binds each process to cores of its own leaves it all of them, one that binds none leaves each an
    equal part, and one that binds by socket an equal part of the socket. A quota of the container is shared equally.
    The processes tell each other their cores, where they have begun to work together: every one of them calls this.
    """
    own = find_cores()
    told = gather_from_all_ranks([(socket.gethostname(), own)])
    beside = [cores for host, cores in told if host == socket.gethostname()]
    if len(beside) != processes:  # they have not begun: those that are to be started here will be bound like this one
        beside = [own] * processes
    share = sum(1 / sum(core in cores for cores in beside) for core in own)
    return min(share, quota() / processes)


def quota() -> float:
    """Read how many cores' time the control groups (version 2) grant this process, its own group and all above it."""
    try:
        own = CGROUPS / OWN_CGROUP.read_text().rpartition("::")[2].strip().lstrip("/")
    except OSError:
        return float("inf")
    limits = [(group / "cpu.max") for group in (own, *own.parents)]
    words = [limit.read_text().split() for limit in limits if limit.is_file()]
    return min((int(time) / int(period) for time, period in words if time != "max"), default=float("inf"))
