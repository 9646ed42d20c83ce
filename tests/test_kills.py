"""Runs and jobs that are killed, and to which much else comes, are those that nobody disturbed: tests/faults."""

import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parent / "faults"
sys.path.append(str(FAULTS))

import manifest  # noqa: E402


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(6, marks=pytest.mark.slow),
        pytest.param(100, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3500)]),
    ],
)
def test_nothing_differs_after_faults(tmp_path, number):
    command = [sys.executable, str(FAULTS / "play.py"), str(tmp_path), f"--faults={number}", "--seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing differs" in done.stdout


def test_a_manifest_is_drawn_from_its_seed_and_read_as_it_was_written(tmp_path):
    faults = list(manifest.draw(300, seed=3))
    assert faults == list(manifest.draw(300, seed=3))
    assert faults != list(manifest.draw(300, seed=4))
    assert [one.number for one in faults] == list(range(300))
    assert {one.target for one in faults} == manifest.RUNS.keys() | manifest.JOBS.keys()
    manifest.write(tmp_path / "manifest.jsonl", faults)
    assert [one for scenario in manifest.read(tmp_path / "manifest.jsonl") for one in scenario] == faults
