"""Share this machine's GPUs among its sweeps: each job has its own, and waits if another sweep holds them."""

import os
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout


def gpus_here() -> list[str]:
    """List the GPUs that this process may use, by number or name; none without a driver. CUDA is not initialised."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [one.strip() for one in visible.split(",") if one.strip()]
    try:
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        listed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()


class Claims:
    """GPUs claimed for jobs, by locks that end with this process."""

    def __init__(self, gpus: list[str]):
        self.gpus = gpus
        self.locks: dict[str, FileLock] = {}

    def take(self, number: int) -> list[str]:
        """Claim that many free GPUs; none if there are fewer."""
        taken: list[str] = []
        for gpu in self.gpus:
            if len(taken) < number and gpu not in self.locks and self._locked(gpu):
                taken.append(gpu)
        if len(taken) < number:
            self.give_back(taken)
            return []
        return taken

    def give_back(self, gpus: list[str]) -> None:
        for gpu in gpus:
            self.locks.pop(gpu).release()

    def _locked(self, gpu: str) -> bool:
        name = "".join(letter if letter.isalnum() else "-" for letter in gpu)
        lock = FileLock(Path(tempfile.gettempdir()) / f"vitlab-{os.getuid()}-gpu-{name}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return False
        self.locks[gpu] = lock
        return True
