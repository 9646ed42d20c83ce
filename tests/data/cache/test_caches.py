"""A cache holds what its pool holds, is built once, and is whole or not there, whenever its building is stopped."""

import errno
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitlab.data.cache import cache_decoded, cache_encoded
from vitlab.data.images.decoding import DamagedImage, open_image
from vitlab.data.pools.pool import ArrayPool, Pool
from vitlab.data.targets import OneClass
from vitlab.errors import DataError, StorageError

SRC = Path(__file__).parents[3] / "src"


class Photos(Pool):
    """n JPEGs of different sizes, made when they are asked for; `pause` seconds each. Some cannot be read."""

    groups = None

    def __init__(self, n=10, pause=0.0, broken=(), mode="RGB"):
        super().__init__(OneClass(np.arange(n) % 3), f"photos {n} {broken} {mode}")
        self.pause, self.broken, self.mode = pause, broken, mode

    def load(self, i):
        time.sleep(self.pause)
        if i in self.broken:
            return b"nothing"
        random = np.random.default_rng(i)
        small = random.integers(0, 255, (6, 8, 3), dtype=np.uint8)
        width, height = random.integers(20, 90, 2).tolist()
        file = io.BytesIO()
        Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(self.mode).save(file, "JPEG")
        return file.getvalue()

    def name(self, i):
        return f"photo {i}"


def encode(pool, folder, **changes):
    return cache_encoded(pool, folder, **{"shorter_side": 24, "image_mode": "RGB", "num_workers": 0} | changes)


def decode(pool, folder, **changes):
    return cache_decoded(pool, folder, **{"size": 24, "image_mode": "RGB", "in_chans": 3, "num_workers": 0} | changes)


CACHES = pytest.mark.parametrize("cache", [encode, decode])


def pixels(pool, i, image_mode="RGB"):
    return np.asarray(open_image(pool.load(i), image_mode).pixels()[0])


def contents(folder):
    """Of a folder with caches, the files of all that are whole."""
    folders = [p for p in Path(folder).iterdir() if p.is_dir() and p.suffix != ".building"]
    files = [file for folder in folders for file in folder.iterdir() if file.name != ".lock"]
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}


# -- what they hold


@CACHES
def test_a_cache_is_its_pool(tmp_path, cache):
    pool = Photos()
    pool.groups = np.arange(10) // 4
    found = cache(pool, tmp_path)
    assert found.fingerprint == pool.fingerprint  # a run may go on with another cache
    assert np.array_equal(found.targets.values, pool.targets.values)
    assert np.array_equal(found.groups, pool.groups)
    assert [found.name(i) for i in range(10)] == [pool.name(i) for i in range(10)]
    for i in range(10):
        assert (found.size(i) or open_image(found.load(i), None).size) == open_image(pool.load(i), None).size
    copy = pickle.loads(pickle.dumps(found))
    assert np.array_equal(pixels(copy, 7), pixels(found, 7))


def test_encoded_images_are_small_and_alike(tmp_path):
    pool = Photos()
    found = encode(pool, tmp_path)
    for i in range(10):
        height, width = open_image(pool.load(i), None).size
        image = Image.open(io.BytesIO(found.load(i)))
        assert min(image.size) == min(24, height, width)
        assert abs(image.width / image.height - width / height) < 0.1
        expected = Image.open(io.BytesIO(pool.load(i))).resize(image.size, Image.Resampling.LANCZOS)
        assert np.abs(np.asarray(image, dtype=float) - np.asarray(expected)).mean() < 10
        if min(height, width) <= 24:
            assert found.load(i) == pool.load(i)
            assert found.size(i) is None


def test_decoded_images_are_resized_whole(tmp_path):
    pool = Photos()
    found = decode(pool, tmp_path)
    for i in range(10):
        expected = Image.open(io.BytesIO(pool.load(i))).resize((24, 24), Image.Resampling.BICUBIC)
        assert np.abs(found.load(i).astype(int) - np.asarray(expected)).mean() < 1
    view = found.load(3)
    assert (view.shape, view.dtype, type(view)) == ((24, 24, 3), np.uint8, np.ndarray)
    assert np.shares_memory(view, found.pixels)
    assert not view.flags.writeable
    assert len(pickle.dumps(found)) < 2000


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_decoded_pixels_of_the_right_size_are_what_they_were(tmp_path, channels):
    values = np.random.default_rng(0).integers(0, 255, (300, 8, 8, channels), dtype=np.uint8)
    values = values[..., 0] if channels == 1 else values
    pool = ArrayPool(values, OneClass(np.arange(300)), "pixels")
    found = decode(pool, tmp_path, size=8, image_mode=None, in_chans=channels, num_workers=2)
    assert np.array_equal(np.stack([found.load(i) for i in range(300)]), values)
    assert {found.size(i) for i in range(300)} == {None}
    smaller = decode(pool, tmp_path, size=4, image_mode=None, in_chans=channels)
    assert smaller.load(0).shape == (4, 4, channels)[: values.ndim - 1]
    assert smaller.size(0) == (8, 8)


def test_a_wrong_number_of_channels_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"photo 0 has 1 channels, but data.in_chans is 3; set data.images.mode"):
        decode(Photos(mode="L"), tmp_path, image_mode=None)
    pool = ArrayPool(np.zeros((3, 8, 8, 5), dtype=np.uint8), OneClass(np.arange(3)), "satellite")
    with pytest.raises(DataError, match="satellite image 0 has 5 channels, and a JPEG or PNG holds at most 4"):
        encode(pool, tmp_path, image_mode=None)
    assert contents(tmp_path) == {}


@CACHES
def test_unreadable_images_are_recorded_with_their_reason(tmp_path, cache):
    found = cache(Photos(broken=(0, 4)), tmp_path)
    for i in (0, 4):
        with pytest.raises(DamagedImage, match="no image that Pillow knows"):
            found.load(i)
    read = found.load_many([3, 4, 5])
    assert [isinstance(stored, Exception) for stored in read] == [False, True, False]
    assert found.targets.values[4] == 1


# -- when they are built


class Unread(Photos):
    def load(self, i):
        raise AssertionError("the cache should have it")


@CACHES
def test_a_cache_is_built_once_for_each_key(tmp_path, cache):
    pool = Photos()
    cache(pool, tmp_path)
    again = Unread()
    again.fingerprint = pool.fingerprint
    assert pixels(cache(again, tmp_path), 3).shape
    size = "shorter_side" if cache is encode else "size"
    for number, change in enumerate(
        ({size: 16}, {"image_mode": "L"} | ({"in_chans": 1} if cache is decode else {})), 2
    ):
        cache(pool, tmp_path, **change)
        assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == number
    cache(Photos(broken=(1,)), tmp_path)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 4


@CACHES
def test_a_cache_of_something_else_or_damaged_is_refused(tmp_path, cache):
    cache(Photos(), tmp_path)
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    key = json.loads((folder / "key.json").read_text())
    (folder / "key.json").write_text(json.dumps(key | {"fingerprint": "other"}))
    with pytest.raises(DataError, match="is a cache of other data; remove it"):
        cache(Photos(), tmp_path)
    (folder / "key.json").write_text("{")
    with pytest.raises(DataError, match="is a damaged cache; remove it"):
        cache(Photos(), tmp_path)
    (folder / "key.json").write_text(json.dumps(key))
    (data,) = [p for p in folder.iterdir() if p.suffix in (".bin", ".tar")]
    os.truncate(data, 100)
    with pytest.raises(DataError, match=r"(damaged cache|100 bytes)"):
        cache(Photos(), tmp_path)


@CACHES
def test_a_full_disk_leaves_nothing_that_looks_valid(tmp_path, monkeypatch, cache):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate" if cache is decode else "os.fsync", full)
        with pytest.raises(StorageError, match="disk"):
            cache(Photos(), tmp_path)
    assert contents(tmp_path) == {}
    assert pixels(cache(Photos(), tmp_path), 0).shape


def test_a_decoded_cache_says_how_much_room_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 5 * 10**6, 5 * 10**6))
    with pytest.raises(StorageError, match=r"needs 0\.02 GB in .*, where 0\.01 GB are free; .*data.cache.root"):
        decode(Photos(200), tmp_path, size=200)
    assert not list(tmp_path.rglob("*.bin"))


def build(cache, folder, pool, num_workers=0):
    """Another process that builds a cache and then prints how it went."""
    code = f"""
import sys
sys.path[:0] = [{str(SRC)!r}, {str(Path(__file__).parent)!r}]
import test_caches
from test_caches import Photos, Path
if __name__ == "__main__":
    print("ready", flush=True)
    pool = test_caches.{cache.__name__}({pool}, Path({str(folder)!r}), num_workers={num_workers})
    print("done", pool.load_many([0])[0] is not None, flush=True)
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
@CACHES
def test_two_processes_build_one_cache(tmp_path, cache):
    both = [build(cache, tmp_path, "Photos(60, pause=0.2)") for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("done True" in output for output in outputs) == 2
    assert sum("another process is building" in output for output in outputs) == 1
    assert sum("60 images" in output for output in outputs) == 1


def begun(folder):
    """Whether a building that is not finished has kept something."""
    return any(folder.glob("*.building/*.tar")) or any(
        "\n" in file.read_text() for file in folder.glob("*.building/done.jsonl")
    )


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "num_workers"), [(encode, 2), (decode, 0), (decode, 2)])
def test_a_killed_building_is_gone_on_with(tmp_path, monkeypatch, cache, num_workers):
    """kill -9 at several moments: what is there is whole or not there, in the end what an undisturbed build gives."""
    pool = "Photos(1000, pause=0.002, broken=(130, 700))"
    quick = Photos(1000, broken=(130, 700))
    monkeypatch.setattr(sys.modules["vitlab.data.cache.encoded"], "SHARD_BYTES", 10**5)
    monkeypatch.setenv("SHARD_BYTES", "100000")
    cache(quick, tmp_path / "undisturbed")
    killed = 0
    for moment in (0.0, 0.7):  # after what is kept of it is seen
        process = build(cache, tmp_path / "killed", pool, num_workers)
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None and not begun(tmp_path / "killed"):
            time.sleep(0.05)
        time.sleep(moment)
        if process.poll() is None:
            assert contents(tmp_path / "killed") == {} if (tmp_path / "killed").exists() else True
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
    assert killed >= 1
    assert begun(tmp_path / "killed")
    resumed = cache(Photos(1000, broken=(130, 700)), tmp_path / "killed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")
    assert len(resumed) == 1000


@CACHES
def test_a_temporary_file_of_a_killed_building_is_removed(tmp_path, cache):
    cache(Photos(), tmp_path / "undisturbed")
    cache(Photos(), tmp_path / "killed")
    (place,) = (path for path in (tmp_path / "killed").iterdir() if path.is_dir())
    building = place.rename(place.with_name(f"{place.name}.building"))  # killed before it was renamed
    (building / ".key.json.99999999.tmp").write_text("{")
    cache(Photos(), tmp_path / "killed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")


if os.environ.get("SHARD_BYTES"):  # in the process that is killed
    sys.modules["vitlab.data.cache.encoded"].SHARD_BYTES = int(os.environ["SHARD_BYTES"])
