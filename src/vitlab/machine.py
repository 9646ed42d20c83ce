"""What this machine has."""

import os
import sys


def physical_memory() -> int:
    """Bytes of it; without bound where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize
