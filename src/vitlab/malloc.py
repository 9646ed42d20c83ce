"""Memory that a process has freed is kept for its next tensors, rather than given back page by page.

glibc takes a block of more than 128 kB from the system each time and gives it back each time. A training step on a CPU
frees and takes the same hundreds of megabytes again and again, and pays for every page of them when it is first
touched: on a virtual machine 21 of the 115 seconds that the default run takes (docs/measurements.md).
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """From now on in this process and its forks, where malloc is glibc's; elsewhere nothing changes."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
