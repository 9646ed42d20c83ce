"""What processes are told by those who start them."""

import subprocess
import sys

import pytest

from vitlab.distributed import environment

TOLD = {
    "alone": ({}, False, False),
    "first of ours": ({"LOCAL_RANK": "0"}, False, False),
    "second of ours": ({"LOCAL_RANK": "1"}, True, False),
    "torchrun, first": ({"RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}, False, True),
    "torchrun, second machine": ({"RANK": "4", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}, True, True),
    "srun, first": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, False, True),
    "srun, second": ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, True, True),
    "by hand, second machine": ({"MASTER_ADDR": "node1", "NODE_RANK": "1"}, True, True),
    "by hand": ({"MASTER_ADDR": "node1", "NODE_RANK": "0"}, False, True),
}


@pytest.mark.parametrize("case", TOLD)
def test_a_process_knows_whether_it_is_the_first_and_whether_it_was_launched(monkeypatch, case):
    told, other, launched = TOLD[case]
    for name in (*environment.RANKS, *environment.LAUNCHER_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert (environment.is_other_rank(), environment.has_launcher()) == (other, launched)


def test_asking_costs_no_library():
    code = "import sys, vitlab.distributed.environment; print({'torch', 'hydra'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
