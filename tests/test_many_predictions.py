"""`predict` for work: damaged files, other forms, parts of the work, a kill, many files in little memory."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import BARE, FEW, SRC, finished
from PIL import Image

from vitlab.data import Digits


class Killed(BaseException):
    """Stands for kill -9: nothing may handle it."""


@pytest.fixture
def images(tmp_path):
    pool = Digits().open()["train"]
    (tmp_path / "new" / "more").mkdir(parents=True)
    for i in range(7):
        Image.fromarray(pool.load(i)).save(tmp_path / "new" / ("more" if i % 2 else "") / f"{i}.png")
    return tmp_path / "new"


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_one_damaged_file_costs_no_other(cli, images, digits_run):
    (images / "3.png").write_bytes((images / "0.png").read_bytes()[:60])
    run = cli("predict", f"run={digits_run}", "images=new", "output=said.csv", "batch_size=3", "num_workers=2")
    assert run.status == 3
    assert (
        "1 of 8 images cannot be read, such as new/3.png; said.failed.csv lists them with reasons, and said.csv"
        in run.err
    )
    assert len(rows("said.csv")) == 7
    (failed,) = rows("said.failed.csv")
    assert failed["image"] == "new/3.png"
    assert "cannot read new/3.png" in failed["reason"]
    again = cli("predict", f"run={digits_run}", "images=new", "output=skipped.csv", "on_bad_image=skip")
    assert again.status == 0
    assert Path("skipped.csv").read_bytes() == Path("said.csv").read_bytes()
    stopped = cli("predict", f"run={digits_run}", "images=new", "output=stopped.csv", "on_bad_image=error")
    assert stopped.status == 3
    assert "repair or remove the file" in stopped.err
    assert not list(Path().glob("stopped*"))


def test_what_is_no_file_costs_no_image_either(cli, images, digits_run):
    os.mkfifo(images / "pipe.jpg")
    (images / "broken.jpg").symlink_to("nowhere")
    (images / "folder.png").mkdir()
    run = cli("predict", f"run={digits_run}", "images=new", "output=said.csv")
    assert run.status == 3, run.err
    assert len(rows("said.csv")) == 7
    assert {row["image"]: "a pipe" in row["reason"] for row in rows("said.failed.csv")} == {
        "new/broken.jpg": False,
        "new/pipe.jpg": True,
    }


def test_parts_of_several_processes_are_the_whole(cli, images, digits_run):
    for part in ("1/3", "2/3", "3/3"):
        assert cli("predict", f"run={digits_run}", "images=new", f"share={part}", f"output={part[0]}.csv").status == 0
    assert cli("predict", f"run={digits_run}", "images=new", "output=all.csv", "device=cpu").status == 0
    parts = [row for number in "123" for row in rows(f"{number}.csv")]
    assert sorted(row["image"] for row in parts) == sorted(row["image"] for row in rows("all.csv"))
    assert {row["image"]: row["class_1"] for row in parts} == {row["image"]: row["class_1"] for row in rows("all.csv")}


def test_images_are_sorted_by_class_and_rows_are_json(cli, images, digits_run):
    said = cli("predict", f"run={digits_run}", "images=new", "output=said.jsonl", "sort_into=sorted")
    assert said.status == 0, said.err
    assert "copies of the images by class are in sorted" in said.out
    for row in map(json.loads, Path("said.jsonl").read_text().splitlines()):
        kind = "none_of_these" if row["none_of_these"] == "yes" else row["class_1"]
        copied = Path("sorted", kind, Path(row["image"]).relative_to("new"))
        assert copied.read_bytes() == Path(row["image"]).read_bytes()


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("share=4/3", "share=4/3 is not a part of several"),
        ("share=half", "share=half is not a part of several"),
        ("device=gpu9", "leave it out, set device=cpu, or device=cuda for a GPU"),
        ("device=mps", "device=mps cannot be used here (Could not run 'aten::empty.memory_format' with arguments from"),
        ("device=cuda:7", "device=cuda:7 cannot be used here"),
        ("sort_into=new", "sort_into=new holds images that the command reads"),
        ("on_bad_image=ignore", "is not one of: report, skip, error"),
        ("num_workers=-1", "num_workers"),
    ],
)
def test_wrong_values_are_refused(cli, images, digits_run, word, sentence):
    run = cli("predict", f"run={digits_run}", "images=new", "output=said.csv", word)
    assert run.status == 2, run.err
    assert sentence in run.err
    assert not list(Path().glob("said*"))


def test_killed_while_its_output_was_finished_it_is_finished(cli, images, digits_run, monkeypatch):
    """Between the output and the removal of what it was made of."""
    words, unlink = [f"run={digits_run}", "images=new", "output=said.csv"], Path.unlink

    def stopped(path, missing_ok=False):
        if path.suffix == ".partial":
            raise Killed
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", stopped)
        with pytest.raises(Killed):
            cli("predict", *words)
    assert Path("said.csv").exists()
    assert Path("said.csv.partial").exists()
    before = Path("said.csv").read_bytes()
    again = cli("predict", *words)
    assert again.status == 0, again.err
    assert Path("said.csv").read_bytes() == before
    assert not Path("said.csv.partial").exists()
    refused = cli("predict", *words)
    assert (refused.status, "said.csv exists" in refused.err) == (2, True)


def start(run, *words):
    command = [sys.executable, str(SRC / "predict.py"), f"run={run}", "images=many", "output=said.csv", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_killed_and_started_again_the_file_is_the_same(images, digits_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("many").mkdir()
    for i in range(3000):
        os.link(images / "0.png", f"many/{i:04}.png")
    words = ("batch_size=8", "num_workers=1", "device=cpu")
    for size in (20_000, 120_000):
        process = start(digits_run, *words)
        until = time.monotonic() + 120
        while not (Path("said.csv.partial").exists() and Path("said.csv.partial").stat().st_size > size):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not Path("said.csv").exists()
    done = start(digits_run, *words)
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert b"3000 images" in out
    assert re.match(rb"continued after \d+ of 3000", out)
    names = [row["image"] for row in rows("said.csv")]
    assert names == [f"many/{i:04}.png" for i in range(3000)]
    assert len({(row["class_1"], row["probability_1"]) for row in rows("said.csv")}) == 1


PEAK = """
import resource, sys
sys.path.insert(0, {src!r})
sys.argv = ["predict.py", *{words!r}]
import predict
try:
    predict.main()
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_does_not_grow_with_the_number_of_files(images, digits_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    peaks = []
    for name, count in (("few", 2_000), ("many", 20_000)):
        Path(name).mkdir()
        for i in range(count):
            os.link(images / "0.png", f"{name}/{i:05}.png")
        words = [f"run={digits_run}", f"images={name}", f"output={name}.csv", "batch_size=64", "device=cpu"]
        script = PEAK.format(src=str(SRC), words=words)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.rsplit("peak ", 1)[1]))
    assert peaks[1] - peaks[0] < 18_000 * 1.0  # KiB: under 1 KiB for each more file


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_million_files_take_no_more_memory_and_survive_a_kill(tmp_path, monkeypatch):
    """With a model of a few thousand parameters, so that reading and writing are what takes the time."""
    model = ("model.depth=1", "model.embed_dim=16", "model.num_heads=1")
    run = finished(tmp_path / "run", *BARE, *FEW, *model, "trainer.max_epochs=1")
    monkeypatch.chdir(tmp_path)
    image = Image.fromarray(Digits().open()["train"].load(0))
    peaks = {}
    for name, count in (("few", 10_000), ("many", 1_000_000)):
        for i in range(count):
            path = Path(name, f"{i // 10_000:02}", f"{i:06}.png")
            if i % 10_000 == 0:  # a file system allows few links to one file
                path.parent.mkdir(parents=True)
                image.save(path)
                first = path
            else:
                os.link(first, path)
        words = [f"run={run}", f"images={name}", f"output={name}.csv", "batch_size=256", "device=cpu"]
        command = [sys.executable, "-c", PEAK.format(src=str(SRC), words=words)]
        if name == "many":
            process = subprocess.Popen(command)
            partial = Path("many.csv.partial")
            while not (partial.exists() and partial.stat().st_size > 20_000_000):
                assert process.poll() is None
                time.sleep(0.1)
            process.kill()
            process.wait()
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks[name] = int(done.stdout.rsplit("peak ", 1)[1])
    assert re.match(r"continued after \d+ of 1000000", done.stdout)
    with open("many.csv", newline="", encoding="utf-8") as file:
        for i, row in enumerate(csv.DictReader(file)):
            assert row["image"] == f"many/{i // 10_000:02}/{i:06}.png"
    assert i == 999_999
    assert peaks["many"] - peaks["few"] < 990_000 * 0.1  # KiB: under 103 bytes for each more file
