"""Ctrl-C ends a command without a traceback, wherever it is."""

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
