"""What those who start a process say in its environment: torchrun, srun, or another process of the same run."""

import os

RANKS = ("LOCAL_RANK", "RANK", "SLURM_PROCID")
OF_A_LAUNCHER = ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR")


def other_rank() -> bool:
    """Whether another process is the first one of this run."""
    return any(os.environ.get(name, "0") != "0" for name in RANKS)


def launched() -> bool:
    """Whether there may be processes of this run that it does not start itself, such as those on other machines."""
    return any(name in os.environ for name in OF_A_LAUNCHER)
