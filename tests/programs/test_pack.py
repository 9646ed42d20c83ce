"""python src/pack.py writes shards of any data set, and says what it wrote and how to train from it."""

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import SRC, refuses
from PIL import Image

from vitlab.data import Digits, Shards


def small_folder(root, per_class=6, size=12):
    random = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (root / split / name).mkdir(parents=True)
            for i in range(per_class):
                pixels = random.integers(0, 255, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.jpg")
    return [f"data.source.root={root}", "data=folder", "data.num_classes=2", "data.source.index_root=null"]


def test_a_folder_of_images_is_packed_as_it_is(cli, tmp_path):
    folder = small_folder(tmp_path / "images")
    done = cli("pack", *folder, "output=packed", "shard_size=0.005", "data.loading.num_workers=0")
    assert (done.status, done.err) == (0, "")
    assert "train: 12 images in " in done.out
    assert "val: 12 images in " in done.out
    source = Shards(root="packed")
    pools = source.open()
    assert source.class_names == ["cat", "dog"]
    for split, pool in pools.items():
        paths = sorted((tmp_path / "images" / split).rglob("*.jpg"))
        assert pool.load_many(range(12)) == [path.read_bytes() for path in paths]
        assert pool.targets.tolist() == [0] * 6 + [1] * 6
        assert len(set(pool.groups.tolist())) > 1
    again = cli("pack", *folder, "output=packed", "shard_size=0.005", "data.loading.num_workers=0")
    assert (again.status, again.out) == (0, done.out.split("images\n")[-1])
    other = cli("pack", *folder, "output=packed", "shard_size=1")
    assert other.status == 2
    assert "was packed with another shard_bytes; give a new folder" in other.err


@pytest.mark.slow
def test_the_printed_command_trains_as_the_original_does(cli, tmp_path):
    done = cli("pack", "data=digits", "data.image_size=16", f"output={tmp_path / 'packed'}")
    words = shlex.split(re.search(r"python \S+/train.py (.*)", done.out)[1])
    assert words[:2] == ["data=digits", "data.image_size=16"]
    pool, original = Shards(root=str(tmp_path / "packed")).open()["train"], Digits().open()["train"]
    assert np.array_equal(pool.targets.values, original.targets.values)
    assert pool.fingerprint == original.fingerprint
    loss = {}
    for name, data in (("shards", words), ("original", words[:2])):
        run = cli("train", *data, "trainer.max_epochs=1", folder=name)
        assert run.status == 0, run.err
        with open(Path(name, "metrics.csv")) as file:
            loss[name] = [(row["train/loss"], row["val/loss"]) for row in csv.DictReader(file)]
    assert loss["shards"] == loss["original"]


def test_larger_images_may_be_shrunk(cli, tmp_path):
    done = cli("pack", *small_folder(tmp_path / "images", size=40), "output=packed", "shorter_side=20")
    assert done.status == 0
    assert Shards(root="packed").open()["train"].size(3) == (40, 40)


def test_unreadable_images_stop_it_or_are_counted(cli, tmp_path):
    folder = small_folder(tmp_path / "images")
    bad = tmp_path / "images" / "train" / "dog" / "3.jpg"
    bad.write_bytes(bad.read_bytes()[:150])
    stopped = cli("pack", *folder, "output=packed", "data.loading.num_workers=0")
    assert stopped.status == 3
    assert f"cannot read {bad}" in stopped.err
    done = cli("pack", *folder, "output=other", "data.loading.num_workers=0", "data.loading.on_bad_image=skip")
    assert done.status == 0
    assert "train: 11 images" in done.out
    assert "train: 1 files could not be read and are left out\n    dog/3.jpg: " in done.out
    assert list(json.loads(Path("other/index.json").read_text())["splits"]["train"]["skipped"]) == ["dog/3.jpg"]


@pytest.mark.parametrize(
    ("overrides", "status", "words"),
    [
        (["data=digits"], 2, "set output=DIR"),
        (["data=digits", "output=x", "shard_size=0"], 2, "shard_size 0 is not a number above 0"),
        (["data=digits", "output=x", "shorter_side=a"], 2, "shorter_side a is not a whole number"),
        (["data=digits", "output=."], 2, "is neither empty nor"),
        (["data=digits", "output=x", "shorter_side=8", "longest_side=9"], 2, "leave out one of them"),
        (["data=digits", "output=x", "class_names=nowhere"], 2, "class_names=nowhere is used only with index="),
        (["index=.", "class_names=nowhere"], 2, "class_names=nowhere cannot be read"),
        (["index=.", "class_names=thesis.tex"], 2, "class_names=thesis.tex holds no names"),
        (["index=.", "shorter_side=8"], 2, "shorter_side has no effect with index="),
        (["index=nowhere"], 3, "there is no such folder"),
        (["index=memory://x"], 2, "set output=DIR"),
    ],
)
def test_wrong_wishes_are_refused_in_a_sentence(cli, tmp_path, overrides, status, words):
    (tmp_path / "thesis.tex").write_text("")
    refused = cli("pack", *overrides)
    assert refused.status == status
    assert words in refused.err


def test_tars_that_are_there_get_an_index(cli, tmp_path):
    cli("pack", *small_folder(tmp_path / "images"), "output=tars", "data.loading.num_workers=0")
    kept = Shards(root="tars").open()["train"].load(7)
    for path in (tmp_path / "tars").glob("*"):
        if path.suffix != ".tar":
            path.unlink()
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    done = cli("pack", "index=tars", "class_names=names.txt", "data.loading.num_workers=0")
    assert done.status == 0, done.err
    source = Shards(root="tars")
    assert source.open()["train"].load(7) == kept
    assert source.class_names == ["cat", "dog"]


@pytest.fixture
def tar(tmp_path):
    """A tar of 12 samples, in a folder of its own."""
    (tmp_path / "tars").mkdir()
    path, png = tmp_path / "tars" / "train.tar", io.BytesIO()
    Image.new("L", (8, 8)).save(png, "png")
    with tarfile.open(path, "w") as file:
        for i in range(12):
            add(file, f"{i}.cls", b"0")
            add(file, f"{i}.png", png.getvalue())
    return path


def add(file, name, content=b"", **facts):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in facts.items():
        setattr(member, key, value)
    file.addfile(member, io.BytesIO(content))


def test_links_and_devices_in_a_tar_are_named(cli, tar):
    with tarfile.open(tar, "a") as file:
        add(file, "a.cls", b"0")
        add(file, "a.png", type=tarfile.SYMTYPE, linkname="0.png")
        add(file, "b.png", type=tarfile.CHRTYPE)
        add(file, "readme", type=tarfile.SYMTYPE, linkname="0.png")
    done = cli("pack", "index=tars", "data.loading.num_workers=0")
    assert done.status == 3
    assert refuses(done, "2 members of the tars are not files, such as train.tar: a.png")
    assert "12 images" in done.out
    assert "train.tar: a.png: a link" in done.out
    assert "train.tar: b.png: no file" in done.out
    assert "readme" not in done.out


@pytest.mark.parametrize("blocks", [0.5, 1, 2, 2.5, 3, 3.5, 4, 14, 14.5, 15, 16])
def test_a_tar_that_is_cut_anywhere_is_refused(cli, tar, blocks):
    """A member has a block of 512 bytes for its header, and a whole number of them for its content."""
    tar.write_bytes(tar.read_bytes()[: int(512 * blocks)])
    cut = cli("pack", "index=tars", "data.loading.num_workers=0")
    assert cut.status == 3
    assert refuses(cut, "train.tar")
    assert list(tar.parent.iterdir()) == [tar]


def test_tars_that_were_joined_are_refused(cli, tar):
    tar.write_bytes(tar.read_bytes() * 2)
    joined = cli("pack", "index=tars", "data.loading.num_workers=0")
    assert joined.status == 3
    assert refuses(joined, "train.tar goes on after its end")


def test_a_damaged_header_in_a_tar_is_refused(cli, tar):
    content = bytearray(tar.read_bytes())
    content[4 * 512 : 4 * 512 + 300] = b"x" * 300
    tar.write_bytes(content)
    damaged = cli("pack", "index=tars", "data.loading.num_workers=0")
    assert damaged.status == 3
    assert refuses(damaged, "train.tar is cut off or damaged after 0.png: 1 complete images")


@pytest.mark.slow
def test_a_killed_packing_is_gone_on_with(tmp_path):
    """kill -9 in its midst, twice: the shards are, byte for byte, those of an undisturbed packing."""
    folder = small_folder(tmp_path / "images", per_class=600, size=64)

    def start(output):
        words = [sys.executable, str(SRC / "pack.py"), *folder, f"output={output}", "shard_size=0.3"]
        words += ["data.loading.num_workers=2"]
        return subprocess.Popen(
            [*words, "data.loading.num_workers=2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
        )

    killed = 0
    for moment in (2, 8):
        process = start("killed")
        while process.poll() is None and len(list((tmp_path / "killed").glob("*.tar"))) < moment:
            time.sleep(0.002)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += not (tmp_path / "killed" / "index.json").exists()
        process.communicate()
    assert killed >= 1
    for output in ("killed", "undisturbed"):
        process = start(output)
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
    found, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / output).iterdir()} for output in ("killed", "undisturbed")
    )
    assert found == expected
