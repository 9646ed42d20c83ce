"""Share decisions of rank zero with all ranks, before the process group exists."""

import itertools
import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from vitlab.distributed.environment import has_other_launched_processes, is_other_rank, is_started_by_this_run

KEY = "vitlab/{}/{}/{}"
NUMBERS = itertools.count()  # counts decisions, equally on all processes
STORES: list[Any] = []  # open for as long as the process lives: the others read when they come
WAIT = timedelta(minutes=10)


def broadcast_from_rank_zero(name: str, decide: Callable[[], Any]) -> Any:
    """Return, on every launched process (by torchrun, srun or by hand), what `decide` returns on rank zero. The value
    is of plain types. Processes that rank zero starts itself get such values by their command line instead."""
    key = KEY.format(name, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), next(NUMBERS))
    if is_other_rank():
        return json.loads(store().get(key))
    decision = decide()
    store().set(key, json.dumps(decision))
    return decision


def decide_on_rank_zero(name: str, decide: Callable[[], Any]) -> Any:
    """Return, on every process of a run, what `decide` returns on rank zero. The value is of plain types. Launched
    processes get it through the store, processes that rank zero starts later by their environment."""
    variable = f"VITLAB_{name.upper()}"
    if is_started_by_this_run() or (is_other_rank() and not has_other_launched_processes()):
        return json.loads(os.environ[variable])
    decision = broadcast_from_rank_zero(name, decide) if has_other_launched_processes() else decide()
    os.environ[variable] = json.dumps(decision)
    return decision


def open_store_of_start() -> Any:
    """Return a part of the store that no other start of the run, and no run before it in this process, writes to."""
    from torch.distributed import PrefixStore

    return PrefixStore(KEY.format("start", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), next(NUMBERS)), store())


def store() -> Any:
    """Return the key-value store at the run's address. torchrun's agent has opened it, else rank zero does; torch finds
    it there when the process group begins."""
    from torch.distributed import TCPStore

    if not STORES:
        address, port = run_address()
        is_opened_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        STORES.append(
            TCPStore(
                address,
                port,
                is_master=not is_other_rank() and not is_opened_by_agent,
                timeout=WAIT,
                wait_for_workers=False,
                multi_tenant=True,
            )
        )
    return STORES[0]


def run_address() -> tuple[str, int]:
    """Return the host and port of rank zero."""
    if "SLURM_NTASKS" in os.environ and "MASTER_PORT" not in os.environ:
        from pytorch_lightning.plugins.environments import SLURMEnvironment

        cluster = SLURMEnvironment(auto_requeue=False)
        return cluster.main_address, cluster.main_port
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
