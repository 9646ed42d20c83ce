"""A predictor as a function of Ray Data, on a cluster of two nodes on this machine, of which one is killed."""

import collections
import os
import threading
import time

import pytest
from pictures import photo, stored

from vitlab.config.home import ROOT
from vitlab_runtime import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ray = pytest.importorskip("ray", reason="Ray Data needs the extra: pip install 'vitlab[ray]'")
COUNT = 96


@pytest.fixture
def nodes(monkeypatch):
    """A cluster with a head without a slot, and two nodes of one slot each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "runtime"))  # of the workers
    least = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **least})
    yield cluster, [cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20) for _ in range(2)]
    ray.shutdown()
    cluster.shutdown()


def test_every_image_is_answered_once_although_a_node_is_lost(bundle, nodes, tmp_path):
    cluster, (first, _) = nodes
    ray.init(address=cluster.address, logging_level="error")
    names = [str(tmp_path / f"{number}.jpg") for number in range(COUNT)]
    for number, name in enumerate(names):
        content = b"" if number % 10 == 3 else stored(photo(40, 50 + number, seed=number), "JPEG")
        (tmp_path / name).write_bytes(content)
    expected = load(bundle.folder)(names)
    places = tmp_path / "nodes"
    places.mkdir()
    predict = load(bundle.folder, threads=1)

    def predict_slowly(batch):
        node = ray.get_runtime_context().get_node_id()
        (places / f"{node}-{os.path.basename(batch['image'][0])}-{time.time_ns()}").touch()
        time.sleep(1)
        return predict(batch)

    def lose_a_node():
        while sum(name.startswith(first.node_id) for name in os.listdir(places)) < 3:
            time.sleep(0.1)
        cluster.remove_node(first, allow_graceful=False)

    table = ray.data.from_items([{"image": name} for name in names], override_num_blocks=24)
    losing = threading.Thread(target=lose_a_node, daemon=True)
    losing.start()
    rows = table.map_batches(predict_slowly, batch_size=4).take_all()
    losing.join(60)
    assert not losing.is_alive()
    assert collections.Counter(row["image"] for row in rows) == dict.fromkeys(names, 1)
    found = {row["image"]: row for row in rows}
    for place, name in enumerate(names):
        row = found[name]
        assert (row["class"], row["error"]) == (expected["class"][place], expected["error"][place])
        if not row["error"]:
            assert row["probability"] == pytest.approx(float(expected["probability"][place]), abs=1e-5)


def test_the_callable_itself_is_a_function_of_ray_data(bundle, nodes):
    cluster, _ = nodes
    ray.init(address=cluster.address, logging_level="error")
    contents = [{"image": stored(photo(40, 50, seed=n), "JPEG"), "id": n} for n in range(9)]
    rows = ray.data.from_items(contents).map_batches(load(bundle.folder, threads=1), batch_size=4).take_all()
    assert sorted(row["id"] for row in rows) == list(range(9))
    assert all(row["class"] and "image" not in row for row in rows)
