"""vitlab-predict, as a user runs it: its files, tables, sentences and exit statuses."""

import csv
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from pictures import noise, photo, stored

from runtime.conftest import list_files
from vitlab.config.home import ROOT
from vitlab_runtime import command, load

HEAD = "image,class_1,probability_1,class_2,probability_2,novelty,none_of_these"


@pytest.fixture
def run(bundle, tmp_path, monkeypatch, capsys):
    """run("photos", "--top-k", "2") -> status, out, err, of the command with the tiny bundle in an own folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words, folder=bundle.folder):
        monkeypatch.setattr(sys, "argv", ["vitlab-predict", str(folder), *map(str, words)])
        capsys.readouterr()
        try:
            status = command.main()
        except SystemExit as error:
            status = error.code
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return SimpleNamespace(status=status, out=said.out, err=said.err)

    return run


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for number in range(5):
        picture = stored(photo(40 + number, 64, seed=number), "JPEG")
        (folder / ("more" if number == 4 else "") / f"{number}.jpg").write_bytes(picture)
    return folder


def refuses(done, status, sentence):
    return done.status == status and sentence in done.err and len(done.err.strip().splitlines()) == 1


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_file_has_a_row_for_each_image(run, photos, bundle):
    done = run("photos", "--top-k", 2, "--output", "new/out.csv", "--batch-size", 2)
    assert (done.status, done.err) == (0, "")
    assert done.out == "5 images, 0 unreadable; all in new/out.csv\n"
    assert photos.parent.joinpath("new/out.csv").read_text().splitlines()[0] == HEAD
    rows = read_rows("new/out.csv")
    assert [row["image"] for row in rows] == [*(f"photos/{n}.jpg" for n in range(4)), "photos/more/4.jpg"]
    columns = load(bundle.folder)([row["image"] for row in rows])
    for name in HEAD.split(",")[1:]:
        found = columns[name].tolist()
        assert [row[name] for row in rows] == [str(round(v, 6)) if isinstance(v, float) else v for v in found]
    assert os.listdir("new") == ["out.csv"]


def test_without_an_output_a_table_is_printed(run, photos):
    done = run("photos", "--top-k", 2)
    assert done.status == 0
    lines = done.out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("photos/0.jpg  ")
    assert lines[0].count("%") == 2
    assert lines[-1] == "5 images, 0 unreadable"


def test_images_are_files_folders_and_globs(run, photos):
    for words, count in ((["photos/0.jpg"], 1), (["photos/*.jpg"], 4), (["photos/**/*"], 5), (["photos/0.jpg"] * 3, 3)):
        assert f"{count} images" in run(*words).out


def test_images_that_cannot_be_read_are_listed(run, photos):
    (photos / "cut.jpg").write_bytes(stored(photo(90, 90), "JPEG")[:900])
    (photos / "empty.png").touch()
    done = run("photos", "--output", "out.csv")
    assert done.status == 3
    assert len(read_rows("out.csv")) == 5
    cut, empty = read_rows("out.failed.csv")
    assert cut["reason"].startswith("cannot read photos/cut.jpg: ")
    assert empty == {"image": "photos/empty.png", "reason": "cannot read photos/empty.png: no image that Pillow knows"}
    lines = done.err.splitlines()
    assert len(lines) == 3
    assert lines[:2] == [cut["reason"], empty["reason"]]
    assert "2 of 7 images cannot be read; out.failed.csv lists them with reasons, and out.csv has all oth" in lines[2]
    (photos / "cut.jpg").unlink()
    (photos / "empty.png").unlink()
    assert run("photos", "--output", "out.csv", "--overwrite").status == 0
    assert not os.path.exists("out.failed.csv")


def test_a_batch_without_an_image_that_can_be_read(run, tmp_path):
    (tmp_path / "a.png").touch()
    done = run("a.png", "--output", "out.csv", "--top-k", 2)
    assert done.status == 3
    assert (tmp_path / "out.csv").read_text().splitlines() == [HEAD]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ([], 2, "the following arguments are required: images"),
        (["photos", "--top-k", "0"], 2, "top_k=0"),
        (["photos", "--top-k", "x"], 2, "invalid int value"),
        (["photos", "--output", "there.csv"], 2, "there.csv exists; name another file, or add --overwrite"),
        (["photos", "--output", "photos"], 2, "is not the name of a .csv file"),
        (["photos", "--output", "/dev/stdout"], 2, "is not the name of a .csv file"),
        (["there.csv", "--output", "there.csv", "--overwrite"], 2, "is one of the images"),
        (["none"], 3, "none names no image file"),
        (["none/*.png"], 3, "names no image file"),
        (["empty"], 3, "empty names no image file"),
        (["photos", "--output", "there.csv/out.csv"], 6, "cannot write there.csv/out.csv"),
        (["photos", "--output", "/proc/out.csv"], 6, "cannot write /proc/out.csv"),
        (["photos", "--output", "x" * 300 + ".csv"], 6, "File name too long"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(run, photos, tmp_path, words, status, sentence):
    (tmp_path / "there.csv").write_text("kept")
    (tmp_path / "empty").mkdir()
    done = run(*words)
    assert refuses(done, status, sentence), done
    assert (tmp_path / "there.csv").read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["empty", "photos", "there.csv"]


def test_a_bundle_that_cannot_be_used_is_status_4(run, photos, bundle, tmp_path):
    assert refuses(run("photos", folder="photos"), 4, "is not a bundle")
    own = shutil.copytree(bundle.folder, tmp_path / "own")
    content = bytearray((own / "model.onnx").read_bytes())
    content[-9] ^= 1
    (own / "model.onnx").write_bytes(content)
    assert refuses(run("photos", "--output", "out.csv", folder=own), 4, "model.onnx is not the file that bundle.json")
    assert refuses(run("photos", folder=list_files(own, format=3)), 4, "upgrade vitlab-runtime")
    assert not os.path.exists("out.csv")


def test_nothing_is_written_into_the_bundle(run, photos, bundle, tmp_path):
    own = shutil.copytree(bundle.folder, tmp_path / "own")
    assert refuses(run("photos", "--output", "own/out.csv", folder=own), 2, "in the bundle; name another file")


def test_odd_names_stay_on_their_lines(run, tmp_path):
    names = ["with space.png", "two\nlines.png", "ünï.png", "\udcff.png", 'comma,quote".png', "\x1b[31mred.png"]
    for name in names:
        (tmp_path / name).write_bytes(stored(noise(9, 9), "PNG"))
        (tmp_path / f"bad {name}").touch()
    done = run(tmp_path, "--output", "out.csv")
    assert done.status == 3
    assert sorted(row["image"].removeprefix(f"{tmp_path}/") for row in read_rows("out.csv")) == sorted(
        name.replace("\udcff", "\\xff") for name in names
    )
    assert len(read_rows("out.failed.csv")) == len(names)
    assert len(done.err.splitlines()) == len(names) + 1
    assert len(run(*names).out.splitlines()) == len(names) + 1
    assert "\x1b" not in done.err + run(*names).out


def test_the_files_of_a_full_disk_are_not_half_there(bundle, photos, tmp_path):
    (tmp_path / "out.csv").write_text("before")
    words = [bundle.folder, *[photos] * 200, "--output", "out.csv", "--overwrite"]
    done = start(words, tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    _, err = done.communicate()
    assert done.returncode == 6, err
    assert err.startswith("vitlab-predict: cannot write out.csv: ")
    assert "File too large" in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "out.csv").read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "photos"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_command_leaves_nothing(bundle, photos, tmp_path, number):
    process = start([bundle.folder, *[photos] * 3000, "--output", "out/out.csv"], tmp_path)
    while not (tmp_path / "out").is_dir():
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert err == ""
    assert os.listdir(tmp_path / "out") == []


def start(words, folder, **options):
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # not in the background
    code = f"{heard}; import sys; from vitlab_runtime.command import main; sys.exit(main())"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "runtime")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], cwd=folder, env=environment, **pipes, **options
    )
