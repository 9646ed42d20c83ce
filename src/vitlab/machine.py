"""What this machine has, and how this process uses it."""

import ctypes
import os
import platform
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.atomic_files import as_json, digest_of

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
NEVER = 2**31 - 1


def physical_memory() -> int:
    """Bytes of it; without bound where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


def cpu_capabilities() -> dict[str, Any]:
    """What torch knows of the processor; nothing in a torch that does not tell."""
    import torch

    return dict(torch.cpu.get_capabilities()) if hasattr(torch.cpu, "get_capabilities") else {}


def fastest_device() -> Any:
    """The torch.device that computes soonest: a GPU where there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def described_cpu() -> str:
    """Name what decides how long one thread of the CPU computes: model, instructions and torch. The host's name is left
    out: a container has another one each time."""
    import torch

    capabilities = cpu_capabilities()
    name = capabilities.get("cpu_name") or platform.processor() or platform.machine()
    return f"{name} ({digest_of(as_json(capabilities))}), torch {torch.__version__}"


def cache_folder(name: str) -> Path | None:
    """Make a folder of this name for what can be had again, in $XDG_CACHE_HOME/vitlab or ~/.cache/vitlab; among the
    temporary files where there is no home to write to. None where nothing can be written."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for parent in (lambda: home, tempfile.gettempdir):  # which raises OSError where there is none
        with suppress(OSError):
            folder = Path(parent(), "vitlab", name)
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def keep_freed_memory() -> None:
    """Keep memory that this process and its forks free for their next tensors, where malloc is glibc's.

    glibc takes a block of more than 128 kB from the system each time and gives it back each time. A training step on a
    CPU frees and takes the same hundreds of megabytes again and again, and pays for every page of them when it is first
    touched: on a virtual machine 21 of the 115 seconds that the default run takes (docs/measurements.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
