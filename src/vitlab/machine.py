"""Memory, processor and cache folder of this machine."""

import ctypes
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.atomic_files import compute_digest, format_json
from vitlab.errors import ConfigError

POWERCAP = Path("/sys/class/powercap")  # Linux: what a package of an Intel or AMD processor has used, in microjoules
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
NEVER = 2**31 - 1
ONEDNN = {  # flags of a processor, and the value of ONEDNN_MAX_CPU_ISA that allows their use; the newest first
    "amx_fp16": "AVX10_1_512_AMX_FP16",
    "amx_bf16": "AVX512_CORE_AMX",
    "avx512_fp16": "AVX512_CORE_FP16",
    "avx512_bf16": "AVX512_CORE_BF16",
    "avx512_vnni": "AVX512_CORE_VNNI",
    "avx512_bw": "AVX512_CORE",
    "avx_vnni": "AVX2_VNNI",
    "avx2": "AVX2",
    "avx": "AVX",
    "sse4_1": "SSE41",
}


def physical_memory() -> int:
    """Return the physical memory in bytes; sys.maxsize if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


def find_cores() -> frozenset[int]:
    """Return the numbers of the cores that this process may run on; of all cores on macOS, which binds none."""
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def cpu_capabilities() -> dict[str, Any]:
    """Return what torch reports about the processor; an empty dict in versions of torch that report nothing."""
    import torch

    return dict(torch.cpu.get_capabilities()) if hasattr(torch.cpu, "get_capabilities") else {}


def find_fastest_device() -> Any:
    """Return the device of a GPU if there is one, else of the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose_device(name: str | None) -> Any:
    """Return the device of that name, such as cpu or cuda:1; None: the fastest. Raises ConfigError for one that this
    machine does not have."""
    import torch

    if name is None:
        return find_fastest_device()
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:  # torch raises another class for each kind of device
        reason = re.split(r"\. |\n", str(error).strip())[0]  # the first sentence: torch may list all its backends
        advice = "set device=cpu, or device=cuda for a GPU" if name.startswith("gpu") else "or set device=cpu"
        raise ConfigError(f"device={name} cannot be used here ({reason}); leave it out, {advice}") from error
    return device


def read_energy() -> float | None:
    """Read the joules that the processors and NVIDIA GPUs of this machine have used since some time in the past; None
    where the machine does not tell, or not to this user."""
    used = []
    for package in POWERCAP.glob("intel-rapl:*"):
        with suppress(OSError, ValueError):
            used += [int((package / "energy_uj").read_text()) / 1e6] if package.name.count(":") == 1 else []
    with suppress(Exception):  # a library that may be missing, of a driver that may be
        import pynvml

        pynvml.nvmlInit()
        devices = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        used += [pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3 for device in devices]
    return sum(used) if used else None


def describe_cpu() -> str:
    """Describe what decides the speed of one CPU thread: model, instruction sets and version of torch. The host name is
    left out, because it differs in each container."""
    import torch

    capabilities = cpu_capabilities()
    name = capabilities.get("cpu_name") or platform.processor() or platform.machine()
    return f"{name} ({compute_digest(format_json(capabilities))}), torch {torch.__version__}"


def describe_arithmetic(processes: int) -> dict[str, Any]:
    """Describe what decides the last digits of a result: processor, instruction sets, threads, `processes` that train
    together, versions of the libraries that compute, MKL's order of sums, and how float32 matrices are multiplied. On
    equal machines, a run that is computed again is equal bit for bit."""
    import torch

    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    known = dict(re.findall(r"(MKL-DNN|Math Kernel Library Version) (\S+)", torch.__config__.show()))
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "cpu": cpu_capabilities().get("cpu_name") or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn_instructions": find_onednn_instructions(),
        "threads": torch.get_num_threads(),
        "threads_set": os.environ.get("OMP_NUM_THREADS"),
        "processes": processes,
        "gpus": sorted(set(gpus)),
        "torch": str(torch.__version__),
        "onednn": known.get("MKL-DNN"),
        "mkl": known.get("Math Kernel Library Version"),
        "mkl_order": os.environ.get("MKL_CBWR"),
        "products": getattr(matmul, "fp32_precision", None),
    }


def find_onednn_instructions() -> str:
    """Return the newest instructions of the processor that oneDNN may use, by its own names; "" where torch reports
    none. ONEDNN_MAX_CPU_ISA limits them."""
    known, limit = cpu_capabilities(), os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    names = list(ONEDNN.values())
    has = [name for flag, name in ONEDNN.items() if known.get(flag)]
    return next((name for name in has if limit not in names or names.index(name) >= names.index(limit)), "")


def ignore_cached_kernels() -> None:
    """Let torch compile anew where ATEN_CPU_CAPABILITY chooses the instructions. Its cache of graphs (torch 2.15) gives
    also kernels that were made for others, which compute wrong numbers or end the process."""
    if "ATEN_CPU_CAPABILITY" in os.environ:
        import torch._inductor.config

        torch._inductor.config.fx_graph_cache = False


def make_cache_folder(name: str) -> Path | None:
    """Make a cache folder of this name in $XDG_CACHE_HOME/vitlab or ~/.cache/vitlab; among the temporary files if that
    is not writable, and None if nothing is."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parents: tuple[Callable[[], str], ...] = (lambda: home, tempfile.gettempdir)  # gettempdir may raise OSError
    for parent in parents:
        with suppress(OSError):
            folder = Path(parent(), "vitlab", name)
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def keep_freed_memory() -> None:
    """Make glibc's malloc keep freed memory for the next tensors of this process and its forks.

    By default, glibc returns each block of more than 128 kB to the system. A training step on a CPU frees and allocates
    the same hundreds of megabytes each time, and each page costs time when it is first touched: on a virtual machine,
    21 of the default run's 115 seconds (docs/measurements.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
