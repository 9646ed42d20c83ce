"""Let a fault come from within a process: at an operation on its run's files, or after some seconds."""

import errno
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from manifest import DAMAGES, OPERATIONS, Fault

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DAY = 86_400
SAID = "[fault]"


class Operations:
    """Counts openings for writing, renames, links and removals below a folder, and calls `reach` at each, before it is
    done, with its number."""

    def __init__(self, folder: Path):
        self.folder, self.count = os.fspath(folder), 0
        self.owner = os.getpid()  # not the workers that are forked from it
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple) -> None:
        if event in ("os.rename", "os.link", "os.remove") or (event == "open" and arguments[2] & WRITES):
            path = arguments[0]
            if isinstance(path, str) and os.path.abspath(path).startswith(self.folder) and os.getpid() == self.owner:
                self.count += 1
                self.reach(event, os.path.basename(path))

    def reach(self, event: str, name: str) -> None:
        """Nothing but counting, unless a fault is to come."""


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    os.write(2, f"{SAID} {text}\n".encode())


def arm(fault: Fault, operations: Operations, count: int, seconds: float, size: int) -> None:
    """Prepare the fault in this process, whose undisturbed run does `count` operations in so many seconds, and writes
    files of at most `size` bytes."""
    at = 1 + int(fault.moment * count)
    if fault.kind in OPERATIONS:

        def reach(event: str, name: str) -> None:
            reached = operations.count
            if reached != at and not (fault.kind == "read-only" and reached > at):
                return
            if reached == at:
                say(f"{fault.kind} {event} of {name}, operation {at} of {count}")
            if fault.kind == "killed before":
                kill()
            if fault.kind == "killed after":
                threading.Timer(fault.delay, kill).start()
                return
            number = errno.ENOSPC if fault.kind == "disk full" else errno.EROFS
            raise OSError(number, os.strerror(number), name)

        operations.reach = reach
    elif fault.kind == "file size limited":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        say(f"{fault.kind} to {int(fault.moment * size)} bytes")
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fault.moment * size), resource.RLIM_INFINITY))
    elif fault.kind in ("clock set back", "rank cut off"):
        later = threading.Timer(fault.moment * seconds, set_back if fault.kind == "clock set back" else cut_off)
        later.daemon = True
        later.start()


def set_back() -> None:
    """The clock on the wall, by a day; not the one that only counts."""
    say("clock set back")
    now = time.time
    time.time = lambda: now() - DAY


def cut_off() -> None:
    """End all connections of this process, as a network does that fails."""
    say("connections ended")
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                socket.socket(fileno=os.dup(number)).shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def damage(path: Path, fault: Fault, other: Path) -> bool:
    """Damage the newest state of a run that has ended, if it has one; returns whether it did."""
    if fault.kind not in DAMAGES or not path.is_file():
        return False
    content = path.read_bytes()
    place = int(fault.moment * len(content))
    match fault.kind:
        case "truncated":
            path.write_bytes(content[:place])
        case "empty":
            path.write_bytes(b"")
        case "one bit flipped":
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        case "of another run":
            path.write_bytes(other.read_bytes())
        case "removed":
            path.unlink()
    return True
