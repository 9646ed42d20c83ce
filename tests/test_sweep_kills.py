"""A sweep whose processes are killed at random moments ends as the undisturbed one."""

import subprocess
import sys
from pathlib import Path

import pytest

LONG = [pytest.mark.exhaustive, pytest.mark.timeout(3000)]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        pytest.param(3, ["engine.slots=2"], marks=pytest.mark.slow),
        pytest.param(20, ["engine.slots=2"], marks=LONG),
        pytest.param(20, ["engine=submitit", "engine.cluster=local", "engine.slots=2"], marks=LONG),
        pytest.param(20, ["engine=ray"], marks=LONG),
    ],
)
def test_nothing_differs_after_kills(tmp_path, number, words):
    if words[0] == "engine=ray":
        pytest.importorskip("ray", reason="engine=ray needs the extra: pip install 'vitlab[ray]'")
    command = [sys.executable, str(Path(__file__).parent / "kill_sweeps.py"), str(tmp_path), str(number), "0"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing differs" in done.stdout
