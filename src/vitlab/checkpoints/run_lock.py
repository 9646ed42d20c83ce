"""Let one process at a time write into the folder of a run."""

import atexit
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import IO, Any

from vitlab.atomic_files import remove_leftovers
from vitlab.checkpoints.run_folder import CHECKPOINTS, check_files
from vitlab.errors import CheckpointError

LOCK = ".lock"
TAKEN: dict[Path, IO[str]] = {}  # the folders of this process
os.register_at_fork(after_in_child=TAKEN.clear)


def take(folder: Path, *, break_lock: bool) -> None:
    """Lock a run's folder for this process, and remove what a killed one left half written.

    The lock ends with the process, however that ends; its file says whose it was. If that process ran on this machine
    and is gone, the lock is taken over and a sentence says so. Nobody can tell for a process of another machine, so its
    lock holds unless `break_lock`. Raises CheckpointError for a folder that is in use, or whose lock is damaged.
    """
    if folder.absolute() in TAKEN:
        return
    file = open_lock(folder)
    content = file.read()
    holder = parse_holder(content)
    here = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.strftime("%Y-%m-%d %H:%M:%S")}
    problem = None
    if not lock_file(file):
        problem = f"{folder} is in use by {format_holder(holder)}; wait for it, or stop it"
    elif content and not holder and not break_lock:
        problem = (
            f"{folder / LOCK} is damaged, and nobody can tell who uses the folder; if nobody does, add break_lock=true"
        )
    elif holder and holder.get("host") != here["host"] and not break_lock:
        problem = (
            f"{folder} was taken by {format_holder(holder)}, and from here nobody can tell whether it still runs; if "
            "it does not, add break_lock=true"
        )
    if problem is not None:
        file.close()
        raise CheckpointError(problem)
    if holder and holder.get("pid") != here["pid"]:
        print(
            f"{folder} was locked by {format_holder(holder)}, which no longer runs; the lock is taken over", flush=True
        )
    file.truncate(0)
    json.dump(here, file)
    file.flush()
    TAKEN[folder.absolute()] = file
    for place in (folder, folder / CHECKPOINTS, folder / "pictures"):
        remove_leftovers(place)


def is_in_use(folder: Path) -> bool:
    """Whether a process of this machine has taken the folder."""
    if folder.absolute() in TAKEN:
        return True
    try:
        with open(folder / LOCK, "r+", encoding="utf-8") as file:
            return not lock_file(file)
    except (FileNotFoundError, IsADirectoryError):
        return False


def read_holder(folder: Path) -> dict[str, Any]:
    """Read who holds the folder."""
    try:
        return parse_holder((folder / LOCK).read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, IsADirectoryError):
        return {}


def open_lock(folder: Path) -> IO[str]:
    check_files(folder, (LOCK,))
    file = open(folder / LOCK, "a+", encoding="utf-8", errors="replace")  # noqa: SIM115 - open while it is locked
    file.seek(0)
    return file


def lock_file(file: IO[str]) -> bool:
    """Lock the file for this process. Forked processes do not inherit this kind of lock, though they may outlive this
    one. False if another process holds it, or has just removed it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), os.stat(file.name))
    except (BlockingIOError, PermissionError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks
        return True


def leave(folder: Path) -> None:
    """Release a folder that this process holds."""
    file = TAKEN.pop(folder.absolute(), None)
    if file is not None:
        (folder / LOCK).unlink(missing_ok=True)
        file.close()


@atexit.register
def leave_all() -> None:
    for folder in list(TAKEN):
        leave(folder)


def parse_holder(content: str) -> dict[str, Any]:
    try:
        holder = json.loads(content)
    except ValueError:  # empty, or its writer was killed
        return {}
    return holder if isinstance(holder, dict) else {}


def format_holder(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('time')}"
