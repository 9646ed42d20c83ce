"""Run a job as a process that ends with its supervisor: python -m vitlab.sweeps.child PID SCRIPT WORD ..."""

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

SIGNAL_WHEN_ORPHANED = 1  # PR_SET_PDEATHSIG of Linux


def main() -> None:
    supervisor, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SIGNAL_WHEN_ORPHANED, signal.SIGTERM)
    if os.getppid() != int(supervisor):  # the supervisor ended before prctl
        sys.exit(128 + signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).parent))
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main()
