"""The tests that want a GPU; on a CPU those of their lines that it can run."""

import os
from pathlib import Path

import pytest
from step import Assignment, Found

ROOT = Path(__file__).resolve().parents[2]
FILES = [str(ROOT / "tests" / name) for name in ("test_gpu.py", "test_gpu_loader.py")]


class Tally:
    """Counts outcomes as pytest reports them."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.names[report.outcome].append(report.nodeid.rsplit("::")[-1])


def run(given: Assignment) -> Found:
    os.environ["GPU_TESTS_ON"] = given.scale.device
    tally = Tally()
    options = ["-v", "-m", "gpu", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", str(given.folder / "tmp")]
    status = pytest.main([*options, f"--rootdir={ROOT}", *FILES], plugins=[tally])
    figure = ", ".join(f"{len(names)} {outcome}" for outcome, names in tally.names.items() if names)
    assert status == 0, f"{figure or f'pytest ended with status {int(status)}'}: {', '.join(tally.names['failed'])}"
    assert tally.names["passed"], "no test ran"
    return Found(figure, tally.names)
