"""Read from the environment who started a process: torchrun, srun, or another process of the same run."""

import ctypes
import os
import signal
import sys
import threading

from vitlab.distributed.ending import end_with

RANKS = ("LOCAL_RANK", "RANK", "SLURM_PROCID", "NODE_RANK", "GROUP_RANK")
OF_A_LAUNCHER = ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR")
STARTED_BY = "VITLAB_STARTED_BY"  # the process that has started this one
PR_SET_PDEATHSIG = 1  # sys/prctl.h


def begin_process() -> None:
    """Prepare a process before it loads libraries. torch would report a lost connection by pages of its own, beside our
    sentence. A process that the first one of a run has started ends when that one is gone, even if it is stopped by
    then."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if STARTED_BY not in os.environ or not other_rank():
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)  # which means nothing to one that is not stopped
    threading.Thread(target=end_with, args=(int(os.environ[STARTED_BY]),), daemon=True).start()


def other_rank() -> bool:
    """Whether another process is the first one of this run."""
    return any(os.environ.get(name, "0") != "0" for name in RANKS)


def launched() -> bool:
    """Whether there may be processes of this run that it does not start itself, such as those on other machines."""
    return any(name in os.environ for name in OF_A_LAUNCHER)


def several_launched() -> bool:
    """Whether there are: this many tasks of srun, or processes of torchrun, or a machine that has a number."""
    counts = (os.environ.get(name, "1") for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    return any(count != "1" for count in counts) or "NODE_RANK" in os.environ


def started_by_us() -> bool:
    """Whether another process of this run has started this one."""
    return os.environ.get(STARTED_BY) == str(os.getppid())
