"""What was measured of the machine is kept, and what is kept is measured by one process at a time."""

import json
import threading

import pytest

from vitlab import machine, measurements
from vitlab.measurements import FILE, measure_once

GOOD = {"one": 1.0, "other": 2.0}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vitlab" / "measurements" / FILE


def measured_before(seconds=None):
    return measure_once("a block", ["one", "other"], lambda: seconds)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "nonsense", "null", "[" * 100_000, "\udcff", '{"KEY": 1}', '{"KEY": {"one": 1.0}}'),
        *(f'{{"KEY": {{"one": 1.0, "other": {value}}}}}' for value in ('"2"', "NaN", "0.0", "-1.0", "1", "null")),
    ],
    ids=range(15),
)
def test_a_damaged_file_is_measured_anew_and_mended(own_cache, content):
    own_cache.parent.mkdir(parents=True)
    key = f"a block on {machine.describe_cpu()}"
    own_cache.write_bytes(content.replace("KEY", key).encode("utf-8", "surrogateescape"))
    assert measured_before(GOOD) == GOOD
    assert measured_before() == GOOD
    assert json.loads(own_cache.read_text())[key] == GOOD


def test_others_stay_in_the_file(own_cache):
    measure_once("another", ["way"], lambda: {"way": 3.0})
    measured_before(GOOD)
    assert measure_once("another", ["way"], lambda: None) == {"way": 3.0}


def test_where_nothing_can_be_kept_it_is_measured_each_time(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(machine.tempfile, "tempdir", str(tmp_path / "file"))
    assert machine.make_cache_folder("measurements") is None
    assert measured_before(GOOD) == GOOD
    assert measured_before() is None


def test_a_file_that_cannot_be_written_hurts_nobody(own_cache, monkeypatch):
    own_cache.mkdir(parents=True)  # a folder in its place
    assert measured_before(GOOD) == GOOD


def test_of_two_at_a_time_one_measures(monkeypatch):
    started, asked = threading.Barrier(2), []

    def measure():
        asked.append(1)
        threading.Event().wait(0.2)
        return GOOD

    def one():
        started.wait()
        assert measure_once("a block", ["one", "other"], measure) == GOOD

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1


def test_nobody_waits_for_ever_for_one_that_measures(monkeypatch, own_cache):
    monkeypatch.setattr(measurements, "WAIT_SECONDS", 0.05)
    own_cache.parent.mkdir(parents=True)
    with measurements.FileLock(own_cache.with_suffix(".lock")):
        assert measured_before(GOOD) == GOOD
