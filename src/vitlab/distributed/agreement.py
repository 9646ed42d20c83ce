"""Tell the other processes what the first has decided, before they can talk to each other."""

import itertools
import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from vitlab.distributed.environment import other_rank, several_launched, started_by_us

KEY = "vitlab/{}/{}/{}"
NUMBERS = itertools.count()  # counts decisions, equally on all processes
STORES: list[Any] = []  # open for as long as the process lives: the others read when they come
WAIT = timedelta(minutes=10)


def told_by_first(name: str, decide: Callable[[], Any]) -> Any:
    """Decide on the first process, and give all that were launched beside it (torchrun, srun, by hand) what it has
    decided, in plain types. Processes that another one of the run has started are told by their command line."""
    key = KEY.format(name, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), next(NUMBERS))
    if other_rank():
        return json.loads(store().get(key))
    decision = decide()
    store().set(key, json.dumps(decision))
    return decision


def agreed(name: str, decide: Callable[[], Any]) -> Any:
    """Give every process of a run what its first one decides, in plain types: to those launched beside it as above, and
    to those that it starts itself, later, by their environment."""
    variable = f"VITLAB_{name.upper()}"
    if started_by_us() or (other_rank() and not several_launched()):
        return json.loads(os.environ[variable])
    decision = told_by_first(name, decide) if several_launched() else decide()
    os.environ[variable] = json.dumps(decision)
    return decision


def store() -> Any:
    """The store at the address of the run: torchrun's agent has one, else the first process opens it, and torch finds
    it there when the processes come together."""
    from torch.distributed import TCPStore

    if not STORES:
        address, port = address_of_the_run()
        of_the_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        STORES.append(
            TCPStore(
                address,
                port,
                is_master=not other_rank() and not of_the_agent,
                timeout=WAIT,
                wait_for_workers=False,
                multi_tenant=True,
            )
        )
    return STORES[0]


def address_of_the_run() -> tuple[str, int]:
    if "SLURM_NTASKS" in os.environ and "MASTER_PORT" not in os.environ:
        from pytorch_lightning.plugins.environments import SLURMEnvironment

        cluster = SLURMEnvironment(auto_requeue=False)
        return cluster.main_address, cluster.main_port
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
