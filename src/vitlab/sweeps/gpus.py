"""The GPUs of this machine, which its sweeps share: a job has its own, and waits for one that another sweep has."""

import os
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout


def gpus_here() -> list[str]:
    """The GPUs that this process may use, by number or name; no driver, no GPUs. CUDA is not touched."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [one.strip() for one in visible.split(",") if one.strip()]
    try:
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        listed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()


class Claims:
    """GPUs that are taken for jobs, by locks that end with this process."""

    def __init__(self, gpus: list[str]):
        self.gpus = gpus
        self.locks: dict[str, FileLock] = {}

    def take(self, number: int) -> list[str]:
        """Take so many that are free; none where there are fewer."""
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
