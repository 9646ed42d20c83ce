"""A sweep whose processes are killed at random moments ends as the undisturbed one."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(3, marks=pytest.mark.slow),
        pytest.param(20, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3000)]),
    ],
)
def test_nothing_differs_after_kills(tmp_path, number):
    command = [sys.executable, str(Path(__file__).parent / "kill_sweeps.py"), str(tmp_path), str(number), "0"]
    done = subprocess.run([*command, "engine.slots=2"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing differs" in done.stdout
