"""Jobs as tasks of Ray, on a cluster of two nodes on this machine, of which one is killed."""

import os
import signal
import threading

import pytest
from stub_sweep import COMMAND, frozen
from test_schedule import lines, statuses, until

from vitlab.sweeps.ray_cluster import RayCluster
from vitlab.sweeps.schedule import JobSource, Schedule
from vitlab.sweeps.stop import Stop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ray = pytest.importorskip("ray", reason="engine=ray needs the extra: pip install 'vitlab[ray]'")


@pytest.fixture
def nodes():
    """A cluster with a head without a slot, and two nodes of one slot each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    least = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **least})
    yield cluster, [cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20) for _ in range(2)]
    ray.shutdown()
    cluster.shutdown()


def engine(sweep, **changes):
    return RayCluster(
        **{"address": None, "cpus": 1.0, "gpus": 0.0, "retries": 3, **changes}, sweep=sweep.path, modules=[]
    )


def test_the_jobs_of_a_node_that_is_lost_go_on_at_another(tmp_path, nodes):
    cluster, (first, _) = nodes
    sweep = frozen(tmp_path / "sweep", ["a_sleep-8", "b_sleep-8", "c", "d_fail-once", "e_fail"])
    with engine(sweep, address=cluster.address) as entered, Stop() as stop:
        assert entered.free == 2
        schedule = Schedule(sweep, entered, COMMAND, JobSource(), [])
        thread = threading.Thread(target=schedule.run, args=(stop,))
        thread.start()
        until(lambda: all(lines(sweep.path / name / "starts") for name in ("a_sleep-8", "b_sleep-8")), 120)
        cluster.remove_node(first, allow_graceful=False)
        thread.join(300)
        assert not thread.is_alive()
    states = {job.name: sweep.state(job.name) for job in sweep.jobs()}
    assert statuses(states) == {name: "failed" if name == "e_fail" else "done" for name in states}
    assert sorted(states[name].attempts for name in ("a_sleep-8", "b_sleep-8")) == [1, 2]
    assert all(len(lines(sweep.path / name / "ends")) == 1 for name in ("a_sleep-8", "b_sleep-8", "c", "d_fail-once"))


def test_two_jobs_share_what_is_given_in_fractions_and_a_cancelled_one_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_DATA", "somewhere")
    monkeypatch.chdir(tmp_path)
    sweep = frozen(tmp_path / "sweep", ["a_sleep-60", "b_sleep-60"])
    with engine(sweep, cpus=0.5) as entered, Stop() as stop:
        assert entered.free == 2 * int(ray.cluster_resources()["CPU"])
        thread = threading.Thread(target=Schedule(sweep, entered, COMMAND, JobSource(), []).run, args=(stop,))
        thread.start()
        until(lambda: all(lines(sweep.path / job.name / "starts") for job in sweep.jobs()), 120)
        stop.number = signal.SIGTERM
        thread.join(100)
        assert not thread.is_alive()
    assert {sweep.state(job.name).status for job in sweep.jobs()} == {"killed"}
    for job in sweep.jobs():
        assert f"{tmp_path} somewhere" in (sweep.home(job.name) / "console.log").read_text()


def test_a_cluster_without_what_a_job_needs_is_refused(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a"])
    with pytest.raises(ValueError, match="asks for 1 CPUs and 8 GPUs"):
        engine(sweep, gpus=8.0).__enter__()
    with pytest.raises(ValueError, match="there is no Ray cluster"):
        engine(sweep, address="auto").__enter__()
