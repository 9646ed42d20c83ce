"""Share this machine's GPUs among its sweeps. Each job has its own GPUs, and waits while another sweep uses them."""

import os
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout


def list_gpus() -> list[str]:
    """List the GPUs that this process may use, by number or name; none without a driver. Does not initialise CUDA."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [one.strip() for one in visible.split(",") if one.strip()]
    try:
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        listed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()


class GpuClaims:
    """Claims GPUs for jobs by file locks, which the system releases when this process ends."""

    def __init__(self, gpus: list[str]):
        self.gpus = gpus
        self.locks: dict[str, FileLock] = {}

    def take(self, number: int) -> list[str]:
        """Claim `number` free GPUs and return them; an empty list if fewer are free."""
        taken: list[str] = []
        for gpu in self.gpus:
            if len(taken) < number and gpu not in self.locks and self._lock(gpu):
                taken.append(gpu)
        if len(taken) < number:
            self.release(taken)
            return []
        return taken

    def release(self, gpus: list[str]) -> None:
        for gpu in gpus:
            self.locks.pop(gpu).release()

    def _lock(self, gpu: str) -> bool:
        name = "".join(letter if letter.isalnum() else "-" for letter in gpu)
        lock = FileLock(Path(tempfile.gettempdir()) / f"vitlab-{os.getuid()}-gpu-{name}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return False
        self.locks[gpu] = lock
        return True
