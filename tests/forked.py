"""Run an entry in a fork of a server, with bounds on its memory and time: torch is imported once for all."""

import multiprocessing
import os
import resource
import signal
import sys
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

MEMORY, SECONDS = 24 * 2**30, 120


SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["fork_server"])


def start_server():
    """Start the server, if it does not run. It finds `fork_server` by PYTHONPATH alone, and fails without a word."""
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()


def forked(entry, words, folder):
    """status, out and err of an entry that runs in `folder`; status 142 where it was given up after 120 seconds."""
    start_server()
    out, err = Path(f"{folder}.out"), Path(f"{folder}.err")
    child = SERVER.Process(target=run, args=(entry, words, folder, out, err, dict(os.environ)))
    child.start()
    child.join()
    code = child.exitcode
    return SimpleNamespace(
        status=code if code >= 0 else 128 - code,
        out=out.read_text("utf-8", "replace"),
        err=err.read_text("utf-8", "replace"),
    )


def run(entry, words, folder, out, err, environment):
    """Never returns."""
    status = 1
    os.environ.update(environment)
    try:
        for file, number in ((out, 1), (err, 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # pytest has its own
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stdin = open(os.devnull)  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        os.chdir(folder)
        source = Path(__file__).parents[1] / "src"
        sys.argv = [str(source / f"{entry}.py"), *words]
        __import__(entry).main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def tree(folder):
    """Every file below a folder, with its size and the time of its last change."""
    found = sorted(folder.rglob("*"))
    return [
        (str(path), *((stat := path.lstat()).st_size, stat.st_mtime_ns)[: 2 if path.is_file() else 0]) for path in found
    ]


def is_an_answer(run):
    """Whether a command did its work, or ended in one sentence with a status of its own."""
    if run.status == 0:
        return "Traceback" not in run.err
    sentences = [
        line for line in run.err.splitlines() if line.strip() and "Warning" not in line and not line.startswith(" ")
    ]
    return run.status in range(2, 8) and len(sentences) == 1 and sentences[0].partition(":")[0].endswith("Error")
