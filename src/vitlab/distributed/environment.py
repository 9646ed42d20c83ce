"""Read from the environment who started a process: torchrun, srun, or another process of the same run."""

import ctypes
import os
import signal
import sys
import threading

from vitlab.distributed.ending import end_with

RANKS = ("LOCAL_RANK", "RANK", "SLURM_PROCID", "NODE_RANK", "GROUP_RANK")
LAUNCHER_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR")
STARTED_BY = "VITLAB_STARTED_BY"  # the process that has started this one
PR_SET_PDEATHSIG = 1  # sys/prctl.h


def begin_process() -> None:
    """Prepare a process before it loads libraries. torch would report a lost connection by pages of its own, beside our
    sentence. A process that the first one of a run has started ends when that one is gone, even if it is stopped by
    then."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")  # the last operations of each rank, to a file
    if STARTED_BY not in os.environ or not is_other_rank():
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)  # which means nothing to one that is not stopped
    threading.Thread(target=end_with, args=(int(os.environ[STARTED_BY]),), daemon=True).start()


def is_other_rank() -> bool:
    """Whether this process has another rank than zero."""
    return any(os.environ.get(name, "0") != "0" for name in RANKS)


def has_launcher() -> bool:
    """Whether a launcher started this process, so that there may be others, as on other machines."""
    return any(name in os.environ for name in LAUNCHER_VARIABLES)


def has_other_launched_processes() -> bool:
    """Whether a launcher started several processes: tasks of srun, processes of torchrun, or numbered machines."""
    counts = (os.environ.get(name, "1") for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    return any(count != "1" for count in counts) or "NODE_RANK" in os.environ


def is_started_by_this_run() -> bool:
    """Whether another process of this run has started this one."""
    return os.environ.get(STARTED_BY) == str(os.getppid())
