"""Jobs by submitit: what is submitted to SLURM, and what a preempted job does, by its executor for one machine."""

import os
import signal

import pytest
from stub_sweep import COMMAND, frozen
from test_schedule import lines, statuses, until

from vitlab.sweeps.engine import Work
from vitlab.sweeps.schedule import JobSource, Schedule
from vitlab.sweeps.slurm import Slurm
from vitlab.sweeps.stop import Stop

OPTIONS = {"slots": 2, "cluster": "local", "partition": None, "timeout_min": 60, "gpus_per_node": 0}
OPTIONS |= {"cpus_per_task": 1, "mem_gb": None, "sbatch": {}, "modules": []}
SBATCH = """#!/bin/sh
# sbatch as far as submitit needs it: runs the script beside, and says its number
cp "$1" "$OUT/script.sh"
SLURM_JOB_ID=17 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=1 \\
    setsid sh "$1" > /dev/null 2>&1 &
echo "Submitted batch job 17"
"""
SRUN = """#!/bin/sh
# srun without a cluster: the command after its options
while [ "${1#-}" != "$1" ]; do case "$1" in --output | --error) shift 2 ;; *) shift ;; esac; done
exec env SUBMITIT_EXECUTOR=slurm "$@"
"""


def engine(sweep, **changes):
    return Slurm(**{**OPTIONS, **changes}, sweep=sweep.path)


def run_jobs(sweep, made, watch=lambda schedule: None):
    with made as entered, Stop() as stop:
        schedule = Schedule(sweep, entered, COMMAND, JobSource(), [])
        watch(schedule)
        schedule.run(stop)
    return {job.name: sweep.state(job.name) for job in sweep.jobs()}


@pytest.mark.ci
@pytest.mark.slow
def test_each_job_is_done_once_by_a_process_of_its_own(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a", "b_fail-once", "c_fail"])
    states = run_jobs(sweep, engine(sweep))
    assert statuses(states) == {"a": "done", "b_fail-once": "done", "c_fail": "failed"}
    assert states["c_fail"].reason == "ConfigError: it was told to fail"
    assert len(lines(sweep.path / "a" / "starts")) == 1


@pytest.mark.ci
@pytest.mark.slow
def test_a_preempted_job_saves_its_state_and_goes_on_by_itself(tmp_path):
    """submitit's signal comes to the supervisor, and it starts it again, without the sweeper."""
    sweep = frozen(tmp_path / "sweep", ["a_sleep-3"])
    (name,) = (job.name for job in sweep.jobs())
    made = engine(sweep)
    with made:
        made.submit(Work(name, COMMAND))
        until(lambda: lines(sweep.path / name / "starts"))
        os.kill(sweep.state(name).pid, signal.SIGUSR2)  # as `#SBATCH --signal` says
        until(lambda: sweep.state(name).attempts == 2, 60)
        until(lambda: made.poll(0.1) == [name], 60)
    state = sweep.state(name)
    assert (state.status, state.attempts) == ("done", 2)
    assert len(lines(sweep.path / name / "starts")) == 2
    assert len(lines(sweep.path / name / "ends")) == 1
    assert "preempted" in "".join(path.read_text() for path in (sweep.path / "submitit").rglob("*.err"))


@pytest.mark.slow
def test_a_job_that_is_cancelled_ends_with_its_state_noted(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a_sleep-60"])
    made = engine(sweep)
    with made:
        made.submit(Work("a_sleep-60", COMMAND))
        until(lambda: lines(sweep.path / "a_sleep-60" / "starts"))
        made.cancel("a_sleep-60")
        until(lambda: made.poll(0.1) == ["a_sleep-60"], 30)
    state = sweep.state("a_sleep-60")
    assert (state.status, state.reason) == ("killed", "SIGTERM")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Commands of SLURM on the path, in a folder to which sbatch copies what it is given."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", "#!/bin/sh\necho"), ("scancel", "#!/bin/sh")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("OUT", str(tmp_path))
    return tmp_path


def test_what_is_submitted_asks_slurm_for_what_the_config_says(cluster):
    sweep = frozen(cluster / "sweep", ["a"])
    asked = {"partition": "gpu", "gpus_per_node": 2, "cpus_per_task": 3, "mem_gb": 16, "timeout_min": 90}
    made = engine(sweep, cluster="slurm", **asked, sbatch={"account": "vision"})
    states = run_jobs(sweep, made)
    assert statuses(states) == {"a": "done"}
    script = (cluster / "script.sh").read_text()
    for line in ("partition=gpu", "gpus-per-node=2", "cpus-per-task=3", "mem=16GB", "time=90", "account=vision"):
        assert f"#SBATCH --{line}" in script
    for line in ("job-name=sweep", "nodes=1", "signal=USR2@90", "open-mode=append"):
        assert f"#SBATCH --{line}" in script
    assert "submitit.core._submit" in script


def test_a_cluster_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    sweep = frozen(tmp_path / "sweep", ["a"])
    with pytest.raises(ValueError, match="sbatch is missing"):
        engine(sweep, cluster="slurm")
