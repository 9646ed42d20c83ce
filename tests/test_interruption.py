"""Ctrl-C ends a command without a traceback, wherever it is."""

import os
import subprocess
import sys

import pytest
from conftest import SRC

PRESSED = """
import importlib.abc, os, signal, sys

class CtrlC(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, CtrlC())
sys.argv = ["summary.py"]
import summary
summary.main()
"""


@pytest.mark.parametrize("module", ["hydra", "vitlab.programs.summary"])
def test_while_libraries_are_imported(module):
    code = PRESSED.format(module=module)
    ended = subprocess.run([sys.executable, "-c", code], cwd=SRC, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_while_a_command_is_at_work(cli, monkeypatch):
    def interrupted(cfg):
        raise KeyboardInterrupt

    monkeypatch.setattr("vitlab.programs.sweeps.tell", interrupted)
    run = cli("sweeps")
    assert (run.status, run.err) == (130, "")


LATE = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["runs.py", "root=."]
import vitlab.programs.runs
def stopped(cfg):
    raise SystemExit(130)
if {stopped}:
    vitlab.programs.runs.runs = stopped
import runs
runs.main()
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_while_python_takes_its_libraries_down(tmp_path, stopped):
    """Also that of a run which had saved its state and was to end."""
    command = [sys.executable, "-c", LATE.format(stopped=stopped)]
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
