"""experiments/gpu_proof.sh: its dry run on a CPU, and what it says when something goes wrong."""

import json
import re
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "experiments" / "gpu_proof.sh"


def prove(folder, *options):
    """-> exit status, what was printed, and the report."""
    done = subprocess.run([SCRIPT, folder, *options], capture_output=True, text=True)
    report = folder / "gpu_proof.json"
    return done.returncode, done.stdout + done.stderr, json.loads(report.read_text()) if report.is_file() else None


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_step_passes_in_miniature(tmp_path):
    status, said, report = prove(tmp_path / "out", "--dry", "--minutes", "25")
    assert status == 0, said
    names = re.findall(r'Step\("(\w+)"', (SCRIPT.parent / "gpu" / "proof.py").read_text())
    assert [(step["name"], step["result"]) for step in report["steps"]] == [(name, "PASS") for name in names]
    assert re.findall(r"^PASS (\w+) [\d.]+ .+$", said, re.M) == names
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *["gpu_proof.md", "gpu_proof.json", "log.txt", "trace.json.gz"]
    }


@pytest.mark.slow
def test_a_failure_is_told_and_is_the_exit_status(tmp_path):
    (tmp_path / "images" / "train").mkdir(parents=True)
    options = ["--dry", "--only", "cifar10,attention", "--cifar10", tmp_path / "images"]
    status, said, report = prove(tmp_path / "out", *options)
    assert status == 1
    assert {step["name"]: step["result"] for step in report["steps"]} == {"attention": "PASS", "cifar10": "FAIL"}
    assert "DataError" in said
    assert "cifar10 | FAIL" in (tmp_path / "out" / "gpu_proof.md").read_text()


@pytest.mark.slow
def test_a_signal_ends_it_with_its_report(tmp_path):
    log = tmp_path / "out" / "log.txt"
    process = subprocess.Popen([SCRIPT, tmp_path / "out", "--dry", "--only", "machine,interruption"])
    while not log.is_file() or "parameters" not in log.read_text():  # the run of the second step has begun
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    report = json.loads((tmp_path / "out" / "gpu_proof.json").read_text())
    assert [(step["name"], step["result"]) for step in report["steps"]] == [
        *[("machine", "PASS"), ("interruption", "FAIL")]
    ]
    assert report["steps"][1]["figure"] == "stopped"


def test_with_no_time_left_nothing_is_begun(tmp_path):
    status, said, report = prove(tmp_path / "out", "--minutes", "0")
    assert status == 0
    assert {step["result"] for step in report["steps"]} == {"SKIP"}
    assert "SKIP machine 0.0 0 s are left" in said


def test_what_is_misspelt_is_refused(tmp_path):
    status, said, report = prove(tmp_path / "out", "--only", "machine,mashine")
    assert (status, report) == (2, None)
    assert "there is no step mashine" in said


@pytest.mark.slow
def test_what_is_not_installed_is_taken_from_the_wheels_that_were_carried(tmp_path):
    for name in ("torch-9.9-py3-none-any", "no_such_package-1.0-py3-none-any"):
        facts = f"{name.split('-')[0]}-{name.split('-')[1]}.dist-info"
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            wheel.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name.split('-')[0]}\nVersion: 1.0\n")
            wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{facts}/RECORD", "")
    status, said, _ = prove(tmp_path / "out", "--minutes", "0", "--carried", tmp_path)
    assert status == 0, said
    assert "carried: no_such_package-1.0-py3-none-any.whl\n" in said


def test_every_package_that_is_carried_has_a_version():
    wanted = re.search(r"^packages=\(([^)]+)\)", SCRIPT.read_text(), re.M)[1].split()
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(), re.M))
    assert {"hydra-core", "omegaconf", "antlr4-python3-runtime", "vit-pytorch"} <= set(wanted) <= locked


def test_torchao_is_carried_with_a_hash_and_is_one_that_the_extra_takes():
    written = (ROOT / "experiments" / "gpu" / "torchao.txt").read_text()
    version = re.search(r"^torchao==(\d+)\.(\d+)\.\d+ \\\n +--hash=sha256:[0-9a-f]{64}", written, re.M)
    least = re.search(r'"torchao>=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert tuple(map(int, version.groups())) >= tuple(map(int, least.groups()))
    assert "experiments/gpu/torchao.txt" in SCRIPT.read_text()
