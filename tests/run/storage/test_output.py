"""Outputs: what is there already stays unless it may be overwritten, and a run keeps what it wrote."""

import errno
import os
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import SRC, refuses
from omegaconf import OmegaConf
from PIL import Image

from vitlab.atomic_files import remove_leftovers, write_folder_atomically
from vitlab.config.command import check_output
from vitlab.config.refusals import translate_refusal
from vitlab.errors import ConfigError, StorageError
from vitlab.run.storage.output import output_file, output_folder


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder that is a run's, as far as its files tell."""
    monkeypatch.chdir(tmp_path)
    for name in ("provenance.json", "checkpoints/best.ckpt", "predict/early/predictions.csv"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("kept")
    return tmp_path / "run"


def file(given, overwrite=False):
    return output_file(given, "predict", home=Path("runs"), name="", overwrite=overwrite)


def folder(given, overwrite=False):
    return output_folder(given, "export", home=Path("runs"), overwrite=overwrite)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "given",
    ["run/checkpoints/best.ckpt", "run/new.csv", "run/provenance.json", "run", "link/best.ckpt", "run/probe/x.json"],
)
def test_nothing_is_written_into_a_run_but_below_the_folder_of_the_command(run, given, overwrite):
    (run.parent / "link").symlink_to(run / "checkpoints")
    with pytest.raises(ConfigError, match="lies in the run"):
        file(given, overwrite)


def test_a_link_to_a_folder_is_that_folder(run):
    (run / "pictures").mkdir()
    for name, target in (("in_run", run / "pictures"), ("nowhere", "missing")):
        (run.parent / name).symlink_to(target)
    with pytest.raises(ConfigError, match="lies in the run"):
        folder("in_run", overwrite=True)
    with pytest.raises(ConfigError, match="broken link; name a folder"):
        folder("nowhere")
    (run.parent / "empty").mkdir()
    (run.parent / "link").symlink_to("empty")
    with write_folder_atomically(folder("link").make()) as temporary:
        (temporary / "new").touch()
    assert (run.parent / "empty" / "new").exists()


def test_an_output_with_a_slash_at_its_end_is_no_file(run):
    with pytest.raises(ConfigError, match="is a folder"):
        file("new.csv/")


@pytest.mark.parametrize("key", ["images", "run", "data.source.file"])
def test_what_a_command_reads_is_not_replaced(tmp_path, key):
    (tmp_path / "read").write_text("kept")
    cfg = OmegaConf.from_dotlist([f"output={tmp_path}/./read", "overwrite=true", f"{key}={tmp_path}/read"])
    with pytest.raises(ConfigError, match=f"overwrite the input {key}="):
        check_output(cfg)


@pytest.mark.parametrize("listed", ["photos/one.png", "photos/link.png", "photos/../photos/one.png"])
def test_an_image_among_those_that_are_read_is_not_replaced(run, listed):
    (run.parent / "photos").mkdir()
    (run.parent / "photos" / "one.png").write_text("kept")
    (run.parent / "photos" / "link.png").symlink_to("one.png")
    (run.parent / "same").symlink_to("photos")
    files = [Path("photos/other.png"), Path(listed)]
    with pytest.raises(ConfigError, match="would replace"):
        file("same/one.png", overwrite=True).check_apart(files)
    with pytest.raises(ConfigError, match="photos holds photos"):
        folder("same", overwrite=True).check_apart(files)
    file("photos/predictions.csv").check_apart(files)


def test_a_file_in_the_folder_of_the_data_is_not_replaced(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_text("kept")
    cfg = OmegaConf.from_dotlist([f"output={tmp_path}/cat/1.png", "overwrite=true", f"data.source.root={tmp_path}"])
    with pytest.raises(ConfigError, match="would overwrite the input data"):
        check_output(cfg)


def test_a_command_writes_into_its_own_folder_of_a_run(run):
    assert str(file("run/predict/mine.csv").make()) == "run/predict/mine.csv"
    with pytest.raises(ConfigError, match="exists"):
        file("run/predict/early/predictions.csv")
    assert file("run/predict/early/predictions.csv", overwrite=True).make().read_text() == "kept"


def test_a_sweep_is_kept_as_a_run_is(run):
    (run.parent / "sweep").mkdir()
    (run.parent / "sweep" / "sweep.json").touch()
    with pytest.raises(ConfigError, match="lies in the run"):
        file("sweep/results.csv", overwrite=True)


def test_what_exists_needs_overwrite(run):
    (run.parent / "mine.csv").touch()
    with pytest.raises(ConfigError, match="overwrite=true"):
        file("mine.csv")
    assert file("mine.csv", overwrite=True).make().is_file()
    with pytest.raises(ConfigError, match="not empty"):
        output_folder(".", "export", home=Path("runs"), overwrite=False)
    assert output_folder(".", "export", home=Path("runs"), overwrite=True).make().is_dir()
    with pytest.raises(ConfigError, match="is a folder"):
        file(".", overwrite=True)
    with pytest.raises(ConfigError, match="is a file"):
        output_folder("mine.csv", "export", home=Path("runs"), overwrite=True)


@pytest.mark.parametrize("kind", ["device", "stdout", "pipe", "socket"])
def test_devices_and_pipes_are_never_replaced(run, kind):
    place = {"device": "/dev/full", "stdout": "/dev/stdout", "pipe": "pipe", "socket": "socket"}[kind]
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(place)
    with pytest.raises(ConfigError, match="device or pipe"):
        file(place, overwrite=True)
    if kind == "device":
        assert stat.S_ISCHR(os.stat(place).st_mode)


@pytest.mark.parametrize("given", ["mine.csv/x/y.csv", "n" * 300, "loop/x.csv", "/proc/x.csv"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(run, given):
    (run.parent / "mine.csv").touch()
    (run.parent / "loop").symlink_to("loop")
    with pytest.raises(StorageError, match="cannot be written"):
        file(given)


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EISDIR, errno.ENOENT, errno.EIO, errno.ENOSPC, errno.EFBIG])
def test_what_a_disk_refuses_later_is_a_sentence_too(number):
    refusal = translate_refusal(OSError(number, os.strerror(number), "out.csv"))
    assert isinstance(refusal, StorageError)
    assert "out.csv" in str(refusal)


# -- folders


def test_a_folder_is_there_whole_or_not_at_all(tmp_path):
    with suppress(RuntimeError), write_folder_atomically(tmp_path / "out") as folder:
        (folder / "a").write_text("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with write_folder_atomically(tmp_path / "out") as folder:
        (folder / "a").write_text("new")
        assert not (tmp_path / "out").exists()
    (tmp_path / "out" / "other").write_text("theirs")
    with write_folder_atomically(tmp_path / "out") as folder:
        (folder / "a").write_text("newer")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"a": "newer", "other": "theirs"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_leftovers_of_a_killed_writer_go_and_those_of_others_stay(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name in (f".out.{gone.pid}.tmp", f".other.{gone.pid}.tmp", f".out.{os.getpid()}.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    remove_leftovers(tmp_path, of="out")
    assert {path.name for path in tmp_path.iterdir()} == {f".other.{gone.pid}.tmp", f".out.{os.getpid()}.tmp"}


@pytest.mark.slow
def test_an_export_that_is_killed_leaves_nothing_that_stands_in_the_way(cli, tmp_path, digits_run):
    command = [sys.executable, str(SRC / "export.py"), f"run={digits_run}", "output=out"]
    for _ in range(3):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(".out.*")):
            time.sleep(0.001)
        process.kill()
        process.wait()
        if not (tmp_path / "out").exists():
            break
    done = cli(
        "export", f"run={digits_run}", "output=out", *(["overwrite=true"] if (tmp_path / "out").exists() else [])
    )
    assert done.status == 0, done.err
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "model.safetensors"}


# -- whole commands


def test_the_best_model_is_not_replaced_by_a_table(cli, tmp_path, short_run):
    Image.new("L", (8, 8)).save(tmp_path / "x.png")
    best = short_run / "checkpoints" / "best.ckpt"
    before = best.read_bytes()
    done = cli("predict", f"run={short_run}", "images=x.png", f"output={best}", "overwrite=true")
    assert refuses(done, "lies in the run")
    assert best.read_bytes() == before
    done = cli("predict", f"run={short_run}", "images=x.png", "output=/dev/full")
    assert refuses(done, "device or pipe")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.parametrize("command", ["predict", "visualize"])
def test_an_image_that_a_pattern_names_is_not_replaced(cli, tmp_path, short_run, command):
    for name in ("a.png", "b.png"):
        Image.new("L", (8, 8)).save(tmp_path / name)
    before = (tmp_path / "b.png").read_bytes()
    output = "b.png" if command == "predict" else "."
    done = cli(command, f"run={short_run}", "images='*.png'", f"output={output}", "overwrite=true")
    assert refuses(done, "ends in none of" if command == "predict" else "which the command reads")
    assert (tmp_path / "b.png").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "b.png"}
