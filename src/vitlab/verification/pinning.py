"""Let a process compute with the last digits that a recorded machine gave, as far as this one can.

What changes bits on a CPU was measured (docs/verifying.md): the number of threads, the instructions that torch and
oneDNN use, the order of sums in MKL, and how float32 matrices are multiplied.
"""

from typing import Any

FACTS = {  # of a machine, and what they are called
    "cpu": "processor",
    "instructions": "instructions of torch",
    "onednn_instructions": "instructions of oneDNN",
    "threads": "threads",
    "processes": "processes",
    "gpus": "GPUs",
    "torch": "torch",
    "onednn": "oneDNN",
    "mkl": "MKL",
    "mkl_order": "order of sums in MKL (MKL_CBWR)",
    "products": "products of float32 matrices",
}


def pin(recorded: dict[str, Any], own: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """Return the environment in which a process computes as on the recorded machine; `own` describes this one."""
    pinned = dict(environment)
    if recorded["threads_set"] is not None:
        pinned["OMP_NUM_THREADS"] = recorded["threads_set"]
    elif own["threads_set"] is not None or own["threads"] != recorded["threads"]:
        pinned["OMP_NUM_THREADS"] = str(recorded["threads"])
    if own["instructions"] != recorded["instructions"]:
        pinned["ATEN_CPU_CAPABILITY"] = recorded["instructions"].lower()
    if own["onednn_instructions"] != recorded["onednn_instructions"]:
        pinned["ONEDNN_MAX_CPU_ISA"] = recorded["onednn_instructions"]
    pinned.pop("MKL_CBWR", None)
    if (order := recorded.get("mkl_order")) is not None:
        pinned["MKL_CBWR"] = order
    return pinned


def describe_machine_differences(recorded: dict[str, Any], used: dict[str, Any]) -> str:
    """Say in what the machine that was used differs from the recorded one; "" where it is of the same kind. Results of
    GPUs are never taken to be equal bit for bit."""
    parts = [
        f"{name} {used.get(key)} instead of {recorded.get(key)}"
        for key, name in FACTS.items()
        if used.get(key) != recorded.get(key)
    ]
    return ", ".join(parts) or ("a GPU, whose sums have no fixed order" if recorded.get("gpus") else "")
