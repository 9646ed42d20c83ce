"""Begin a worker process of a DataLoader, and end it."""

import os
import signal
import threading
import time

import torch

from vitlab.machine import keep_freed_memory

WATCH = 0.5  # seconds between two checks whether the parent lives


def start_worker(worker: int) -> None:
    """Make a worker use one thread, since many share the cores, keep the memory that images pass through, and end when
    the process that started it ends or says so. A SIGTERM of another process it leaves to that one, which may have a
    step to finish: `timeout` and Slurm send theirs to all processes of a run. torch would end the worker by it, and not
    end one whose large result nobody takes."""
    torch.set_num_threads(1)
    keep_freed_memory()
    if hasattr(signal, "sigtimedwait"):  # not on macOS
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()


def end_with(parent: int) -> None:
    """End this process when its parent has ended or has sent SIGTERM."""
    while os.getppid() == parent:
        if not hasattr(signal, "sigtimedwait"):
            time.sleep(WATCH)
        elif (sent := signal.sigtimedwait({signal.SIGTERM}, WATCH)) and sent.si_pid == parent:
            break
    os._exit(0)
