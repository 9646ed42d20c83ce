"""Runs that are killed and signalled at random moments and gone on with are the undisturbed run."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(4, marks=pytest.mark.slow),
        pytest.param(100, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3000)]),
    ],
)
def test_nothing_differs_after_kills_and_signals(tmp_path, number):
    command = [sys.executable, str(Path(__file__).parent / "kill_runs.py"), str(tmp_path), str(number), "0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing differs" in done.stdout
