"""Shards read back what was packed, by position, from wherever they lie, and notice what was damaged on the way."""

import http.server
import io
import json
import os
import pickle
import tarfile
import threading
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from vitlab.data import Shards
from vitlab.data.cache.reencoding import Reencoding
from vitlab.data.pools.pool import ArrayPool, Pool
from vitlab.data.shards.file_ranges import ByteRange, RemoteFiles
from vitlab.data.shards.index import INDEX, get_name
from vitlab.data.shards.webdataset import index_tars
from vitlab.data.shards.writing import shorten_name, write_shards
from vitlab.data.targets import OneClass, SeveralClasses
from vitlab.errors import ConfigError, DataError

AS_STORED = Reencoding(image_mode=None)


class Files(Pool):
    """Image files in memory."""

    def __init__(self, contents, targets=None):
        super().__init__(targets or OneClass(np.arange(len(contents)) % 3), f"files {len(contents)}")
        self.contents = contents

    def load(self, i):
        return self.contents[i]

    def name(self, i):
        return f"/somewhere/class {self.targets.tolist()[i]}/image é {i}.jpg"


def picture(i, size=(20, 24), file_format="JPEG", mode="RGB"):
    pixels = np.random.default_rng(i).integers(0, 255, (*size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, file_format)
    return file.getvalue()


def files(n=20, **how):
    return Files([picture(i, **how) for i in range(n)])


def packed(folder, pools, *, encode=AS_STORED, shard_bytes=8000, num_workers=0, on_bad_image="error"):
    settings = {"shard_bytes": shard_bytes, "num_workers": num_workers, "on_bad_image": on_bad_image}
    return write_shards(pools, ["a", "b", "c"], Path(folder), encode, **settings)


def opened(root):
    source = Shards(root=str(root))
    source.prepare()
    return source.open()


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.name != ".lock"}


# -- what is written


def test_what_was_packed_is_read_back(tmp_path):
    train, val = files(20), files(7)
    packed(tmp_path, {"train": train, "val": val})
    source = Shards(root=str(tmp_path))
    pools = source.open()
    assert source.class_names == ["a", "b", "c"]
    for pool, original in ((pools["train"], train), (pools["val"], val)):
        assert pool.load_many(range(len(original))) == original.contents
        assert pool.targets.values.dtype == pool.groups.dtype == np.int64
        assert np.array_equal(pool.targets.values, original.targets.values)
        assert pool.fingerprint == original.fingerprint  # the same pictures: a run may go on with either
        assert pool.size(0) is None
    groups = pools["train"].groups
    assert groups[0] == 0
    assert groups[-1] == len(list(tmp_path.glob("train-*.tar"))) - 1 > 1
    assert set(np.diff(groups)) == {0, 1}
    assert pools["train"].name(7) == f"class 1/image é 7.jpg in {tmp_path}/train-{groups[7]:06d}.tar"


def test_the_shards_are_webdatasets(tmp_path):
    pool = files(9)
    packed(tmp_path, {"train": pool})
    found = []
    for path in sorted(tmp_path.glob("*.tar")):
        assert path.stat().st_size <= 8000
        with tarfile.open(path) as tar:
            found += [(member.name, tar.extractfile(member).read()) for member in tar]
    assert [name for name, _ in found[:2]] == ["000000000.jpg", "000000000.cls"]
    assert [content for name, content in found if name.endswith("jpg")] == pool.contents
    assert [int(content) for name, content in found if name.endswith("cls")] == pool.targets.tolist()


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (8, 8, 2), (8, 8, 3), (8, 8, 4)])
def test_pixels_lose_nothing(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 255, (5, *shape), dtype=np.uint8)
    original = ArrayPool(pixels, OneClass(np.arange(5)), "pixels")
    packed(tmp_path, {"train": original})
    pool = opened(tmp_path)["train"]
    for i in range(5):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(pool.load(i)))).reshape(shape), pixels[i])
    assert pool.fingerprint == original.fingerprint


def test_larger_images_are_shrunk_and_small_ones_left_alone(tmp_path):
    pool = Files([picture(0, (100, 60)), picture(1, (30, 40)), picture(2, (60, 200), mode="L"), picture(3, (9, 200))])
    packed(tmp_path, {"train": pool}, encode=Reencoding(None, shorter_side=40))
    shrunk = opened(tmp_path)["train"]
    images = [Image.open(io.BytesIO(content)) for content in shrunk.load_many(range(4))]
    assert [image.size[::-1] for image in images] == [(67, 40), (30, 40), (40, 133), (9, 200)]
    assert [image.mode for image in images] == ["RGB", "RGB", "L", "RGB"]
    assert [shrunk.size(i) for i in range(4)] == [(100, 60), None, (60, 200), None]
    assert shrunk.load(1) == pool.contents[1]
    assert shrunk.fingerprint != pool.fingerprint
    assert Reencoding(None, longest_side=50).scale(100, 20) == 0.5


def test_a_turned_photograph_is_upright_when_it_is_shrunk(tmp_path):
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((40, 80, 3), dtype=np.uint8)).save(file, "JPEG", exif=exif)
    packed(tmp_path, {"train": Files([file.getvalue()])}, encode=Reencoding("RGB", shorter_side=10))
    pool = opened(tmp_path)["train"]
    image = Image.open(io.BytesIO(pool.load(0)))
    assert (image.size, pool.size(0), image.getexif().get(0x0112)) == ((10, 20), (80, 40), None)


def test_workers_change_nothing(tmp_path):
    pool = files(70)
    packed(tmp_path / "0", {"train": pool})
    packed(tmp_path / "2", {"train": pool}, num_workers=2)
    assert contents(tmp_path / "0") == contents(tmp_path / "2")


def test_one_image_larger_than_a_shard_has_a_shard_of_its_own(tmp_path):
    packed(tmp_path, {"train": files(3)}, shard_bytes=1)
    assert opened(tmp_path)["train"].groups.tolist() == [0, 1, 2]


# -- unreadable images


def spoilt():
    pool = files(8)
    pool.contents[2] = b"no image"
    pool.contents[5] = pool.contents[5][:200]
    return pool


def test_an_unreadable_image_is_named(tmp_path):
    with pytest.raises(DataError, match=r"image é 2.jpg: no image that Pillow knows.*on_bad_image=skip"):
        packed(tmp_path, {"train": spoilt()})


def test_unreadable_images_can_be_left_out(tmp_path):
    pool = spoilt()
    index = packed(tmp_path, {"train": pool}, on_bad_image="skip")
    kept = [0, 1, 3, 4, 6, 7]
    found = opened(tmp_path)["train"]
    assert found.load_many(range(6)) == [pool.contents[i] for i in kept]
    assert found.targets.tolist() == pool.targets.values[kept].tolist()
    assert [found.name(k).split(" in ")[0] for k in range(6)] == [shorten_name(pool.name(i)) for i in kept]
    assert list(index["splits"]["train"]["skipped"]) == [shorten_name(pool.name(i)) for i in (2, 5)]
    assert found.fingerprint != pool.fingerprint


# -- going on with what was begun


class InterruptionError(Exception):
    pass


def test_packing_goes_on_where_it_was_broken_off(tmp_path, monkeypatch):
    pools = {"train": files(70), "val": files(40, file_format="PNG")}
    packed(tmp_path / "undisturbed", pools)
    whole = Reencoding.__call__
    for stop in (pools["train"].contents[40], pools["val"].contents[35]):

        def until(self, stored, stop=stop):
            if stored == stop:
                raise InterruptionError
            return whole(self, stored)

        with monkeypatch.context() as patch:
            patch.setattr(Reencoding, "__call__", until)
            patch.setattr("vitlab.data.shards.writing.AT_ONCE", 4)
            with pytest.raises(InterruptionError):
                packed(tmp_path / "resumed", pools)
        assert not (tmp_path / "resumed" / INDEX).exists()
    assert len(list((tmp_path / "resumed").glob("train-*.tar"))) > 3
    packed(tmp_path / "resumed", pools)
    assert contents(tmp_path / "resumed") == contents(tmp_path / "undisturbed")


def test_a_pack_that_was_killed_before_it_had_written_anything_begins_anew(tmp_path):
    packed(tmp_path / "undisturbed", {"train": files(3)})
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".lock").touch()
    (tmp_path / "killed" / ".packing.json.99999999.tmp").write_text("{")
    packed(tmp_path / "killed", {"train": files(3)})
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match="is neither empty nor"):
        packed(tmp_path, {"train": files(3)})
    packed(tmp_path / "new", {"train": files(3)})
    before = contents(tmp_path / "new")
    packed(tmp_path / "new", {"train": files(3)})  # whole already
    for pools, how in (({"train": files(4)}, {}), ({"train": files(3)}, {"shard_bytes": 9})):
        with pytest.raises(ConfigError, match=r"was packed with another (source|shard_bytes); give a new folder"):
            packed(tmp_path / "new", pools, **how)
    assert contents(tmp_path / "new") == before


# -- damage


def flip(path, position):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_a_flipped_byte_is_found_and_named(tmp_path):
    original = files(6)
    packed(tmp_path, {"train": original})
    pool = opened(tmp_path)["train"]
    flip(tmp_path / "train-000000.tar", 700)
    with pytest.raises(OSError, match=r"image é 0.jpg in .*train-000000.tar: its bytes are not those"):
        pool.load(0)
    damaged, *others = pool.load_many(range(6))
    assert isinstance(damaged, OSError)
    assert others == original.contents[1:]


def test_a_damaged_index_is_refused(tmp_path):
    packed(tmp_path, {"train": files(6)})
    flip(tmp_path / "train.safetensors", -1 + (tmp_path / "train.safetensors").stat().st_size)
    with pytest.raises(DataError, match=r"train.safetensors, the index of a split, is damaged"):
        opened(tmp_path)


def test_a_missing_or_short_shard_is_a_sentence(tmp_path):
    packed(tmp_path, {"train": files(20)})
    last = sorted(tmp_path.glob("*.tar"))[-1]
    size = last.stat().st_size
    os.truncate(last, 1000)
    with pytest.raises(DataError, match=f"{last.name} has 1,000 bytes, and {size:,} were written"):
        opened(tmp_path)
    last.unlink()
    with pytest.raises(DataError, match=f"there is no file .*{last.name}"):
        opened(tmp_path)


def test_no_index_and_another_format_are_sentences(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*index.json; vitlab pack output=DIR"):
        opened(tmp_path)
    for content, words in (
        ("[]", "not an index of shards"),
        ('{"format": "vitlab shards", "version": 99}', "format vitlab shards 99"),
    ):
        (tmp_path / INDEX).write_text(content)
        with pytest.raises(DataError, match=words):
            opened(tmp_path)


def test_a_pickled_pool_is_small_and_reads_the_same(tmp_path):
    original = files(200, size=(8, 8))
    packed(tmp_path, {"train": original}, shard_bytes=10**6)
    pool = opened(tmp_path)["train"]
    pool.load(3)
    pickled = pickle.dumps(pool)
    assert len(pickled) < 800
    copy = pickle.loads(pickled)
    assert copy.load_many([199, 0]) == [original.contents[199], original.contents[0]]
    assert np.array_equal(copy.targets.values, original.targets.values)


def test_more_shards_than_files_may_be_open(tmp_path, monkeypatch):
    monkeypatch.setattr("vitlab.data.shards.file_ranges.MOST_OPEN", 3)
    original = files(10)
    packed(tmp_path, {"train": original}, shard_bytes=1)
    pool = opened(tmp_path)["train"]
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert pool.load_many(range(10)) == original.contents
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 3


# -- far away


@pytest.fixture
def no_waiting(monkeypatch, tmp_path):
    monkeypatch.setattr("vitlab.data.shards.file_ranges.DELAYS", (0.0, 0.01, 0.01))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def in_memory(tmp_path, no_waiting):
    """Shards at memory://, and the pool they were made from."""
    original = files(20)
    packed(tmp_path / "made", {"train": original})
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.put(f"{tmp_path}/made/", "/bucket/set", recursive=True)
    yield memory, original
    memory.store.clear()


def test_an_object_store_is_read_by_ranges(in_memory, tmp_path):
    _, original = in_memory
    pool = opened("memory://bucket/set/")["train"]
    assert pool.load_many([19, 0, 7]) == [original.contents[i] for i in (19, 0, 7)]
    assert pickle.loads(pickle.dumps(pool)).load(4) == original.contents[4]
    assert len(list((tmp_path / "home").rglob("*.safetensors"))) == 1


def test_a_remote_shard_that_is_short_or_missing_is_a_sentence(in_memory):
    memory, _ = in_memory
    memory.pipe("/bucket/set/train-000001.tar", b"short")
    with pytest.raises(DataError, match=r"train-000001.tar has 5 bytes"):
        opened("memory://bucket/set")
    memory.rm("/bucket/set/train-000001.tar")
    with pytest.raises(DataError, match=r"there is no file memory://bucket/set/train-000001.tar"):
        opened("memory://bucket/set")


def test_an_unknown_protocol_is_a_sentence():
    with pytest.raises(DataError, match="cannot open nowhere://x"):
        opened("nowhere://x")


class Unsteady:
    """A file system whose first answers are errors."""

    def __init__(self, errors):
        self.errors, self.get_question = errors, 0

    def cat_ranges(self, paths, starts, ends, on_error):
        answers = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            self.get_question += 1
            answers.append(self.errors.pop(path) if path in self.errors else b"x" * (end - start))
        return answers


def test_what_fails_is_asked_for_again(no_waiting):
    remote = RemoteFiles("memory://bucket")
    remote._opened = (os.getpid(), unsteady := Unsteady({"bucket/b": TimeoutError("slow down")}), "bucket")
    assert remote.ranges([ByteRange("a", 0, 2), ByteRange("b", 5, 3)]) == [b"xx", b"xxx"]
    assert unsteady.get_question == 3
    unsteady.errors = {"bucket/b": PermissionError(13, "no")}
    with pytest.raises(DataError, match="cannot read memory://bucket/b: Permission denied"):
        remote.ranges([ByteRange("a", 0, 2), ByteRange("b", 5, 3)])


class Ranged(http.server.SimpleHTTPRequestHandler):
    """A server of files that knows Range, and fails with 503 while `failures` are left."""

    failures = 0
    requests = 0

    def log_message(self, *args):
        pass

    def do_GET(self):
        Ranged.requests += 1
        if Ranged.failures:
            Ranged.failures -= 1
            return self.send_error(503)
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        content, status = path.read_bytes(), 200
        if (asked := self.headers.get("Range", "")).startswith("bytes="):
            begin, end = asked.removeprefix("bytes=").split("-")
            content, status = content[int(begin) : int(end) + 1], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return self.wfile.write(content)


@pytest.mark.slow
def test_a_web_server_is_read_by_ranges(tmp_path, no_waiting):
    original = files(20)
    packed(tmp_path / "made", {"train": original})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranged, directory=str(tmp_path / "made")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        pool = opened(url := f"http://127.0.0.1:{server.server_port}")["train"]
        Ranged.failures = 2
        assert pool.load_many(range(20)) == original.contents
        Ranged.failures = 10**6
        with pytest.raises(DataError, match=f"cannot read {url}/train-000000.tar: 503"):
            pool.load_many([0])
    finally:
        Ranged.failures = 0
        server.shutdown()
        server.server_close()


# -- tars of others


def foreign(path, samples):
    """A tar of (name, content) pairs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in samples:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_tars_of_others_are_indexed_where_they_are(tmp_path):
    pictures = [picture(i) for i in range(6)]
    long = "x" * 120  # its name needs a header of its own
    for shard in range(2):
        members = []
        for i in range(3 * shard, 3 * shard + 3):
            members += [
                (f"{long}/{i}.cls", str(i % 3).encode()),
                (f"{long}/{i}.jpg", pictures[i]),
                (f"{long}/{i}.txt", b"words"),
            ]
        foreign(tmp_path / f"set-train-{shard:04d}.tar", members)
    foreign(tmp_path / "set-validation-0.tar", [("a.png", picture(9, file_format="PNG")), ("a.json", b'{"label": 2}')])
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.tar")}
    index = index_tars(str(tmp_path), tmp_path, class_names=None, num_workers=0)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.tar")} == before
    source = Shards(root=str(tmp_path))
    pools = source.open()
    assert pools["train"].load_many(range(6)) == pictures
    assert pools["train"].targets.tolist() == [0, 1, 2] * 2
    assert pools["train"].groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert pools["val"].targets.tolist() == [2]
    assert source.class_names == index["class_names"] == ["0", "1", "2"]
    assert pools["train"].name(4) == f"{long}/4.jpg in {tmp_path}/set-train-0001.tar"


def test_an_index_may_lie_elsewhere_and_classes_may_be_words(tmp_path, no_waiting):
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    foreign(tmp_path / "0.tar", [("1.webp", picture(1, file_format="WEBP")), ("1.json", b'{"label": "dog"}'),
                                 ("2.jpg", picture(2)), ("2.json", json.dumps({"cls": "cat"}).encode())])  # fmt: skip
    memory.put(str(tmp_path / "0.tar"), "/tars/00000.tar")
    index_tars("memory://tars", tmp_path / "index", class_names=None, num_workers=0)
    source = Shards(root=str(tmp_path / "index"))
    pool = source.open()["train"]
    assert (source.class_names, pool.targets.tolist()) == (["cat", "dog"], [1, 0])
    assert pool.load_many([0, 1]) == [picture(1, file_format="WEBP"), picture(2)]
    memory.store.clear()


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([("1.jpg", b"x")], "1.jpg has no class; add"),
        ([("1.jpg", b"x"), ("1.cls", b"\xff")], "1.cls holds no class"),
        ([("1.jpg", b"x"), ("1.cls", b"1"), ("2.jpg", b"x"), ("2.cls", b"dog")], "some classes are integers"),
    ],
)
def test_tars_without_classes_are_refused(tmp_path, samples, words):
    foreign(tmp_path / "0.tar", samples)
    with pytest.raises(DataError, match=words):
        index_tars(str(tmp_path), tmp_path, class_names=None, num_workers=0)


def test_what_is_no_whole_tar_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"there is no \.tar"):
        index_tars(str(tmp_path), tmp_path, class_names=None, num_workers=0)
    foreign(tmp_path / "0.tar", [("1.jpg", picture(0)), ("1.cls", b"0"), ("2.jpg", picture(1)), ("2.cls", b"0")])
    os.truncate(tmp_path / "0.tar", 3500)
    with pytest.raises(DataError, match=r"0.tar is not a complete, uncompressed tar"):
        index_tars(str(tmp_path), tmp_path, class_names=None, num_workers=0)


def test_names_stand_one_after_another():
    letters = np.frombuffer("aéb".encode(), dtype=np.uint8)
    columns = {"names": letters, "name_end": np.array([1, 1, 4])}
    assert [get_name(columns, i) for i in range(3)] == ["a", "", "éb"]


# -- several classes an image

HOT = np.random.RandomState(0).randint(0, 2, (20, 3)).astype(np.uint8)


def test_several_classes_are_packed_and_read_back(tmp_path):
    HOT[4] = 0
    original = Files([picture(i) for i in range(20)], SeveralClasses(HOT))
    index = packed(tmp_path / "a", {"train": original})
    assert len(index["splits"]["train"]["shards"]) > 1
    pool = opened(tmp_path / "a")["train"]
    assert np.array_equal(pool.targets.values, HOT)
    assert pool.targets.values.dtype == np.uint8
    assert np.array_equal(pickle.loads(pickle.dumps(pool)).targets.values, HOT)
    assert pool.load_many(range(20)) == original.contents
    with tarfile.open(tmp_path / "a" / "train-000000.tar") as tar:
        assert tar.getnames()[:2] == ["000000000.jpg", "000000000.json"]
        assert json.load(tar.extractfile("000000000.json")) == {"label": np.flatnonzero(HOT[0]).tolist()}
    index_tars(str(tmp_path / "a"), tmp_path / "b", class_names=["a", "b", "c"], num_workers=0)
    assert np.array_equal(opened(tmp_path / "b")["train"].targets.values, HOT)  # the tars tell the same


def test_several_classes_stay_with_their_images_when_some_are_left_out(tmp_path):
    original = Files([b"damaged" if i == 3 else picture(i) for i in range(20)], SeveralClasses(HOT))
    packed(tmp_path, {"train": original}, on_bad_image="skip")
    pool = opened(tmp_path)["train"]
    assert np.array_equal(pool.targets.values, np.delete(HOT, 3, axis=0))


def test_lists_of_classes_in_tars_of_others(tmp_path):
    members = []
    for i, label in enumerate([["dog", "cat"], [], "emu"]):
        members += [(f"{i}.jpg", picture(i)), (f"{i}.json", json.dumps({"label": label}).encode())]
    foreign(tmp_path / "0.tar", members)
    index_tars(str(tmp_path), tmp_path, class_names=None, num_workers=0)
    source = Shards(root=str(tmp_path))
    assert source.open()["train"].targets.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert source.class_names == ["cat", "dog", "emu"]
