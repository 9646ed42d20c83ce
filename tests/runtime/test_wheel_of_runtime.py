"""The wheel of the runtime, where nothing but its three libraries can be imported, answers as vitlab predict does."""

import csv
import os
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest
from pictures import noise
from PIL import Image

from runtime.conftest import write_bundle
from vitlab.bundles.graph import Scorer
from vitlab.config.home import ROOT
from vitlab.data import Digits
from vitlab.run.inference.saved_run import SavedRun

LIBRARIES = ["numpy", "onnxruntime", "pillow", "flatbuffers", "packaging", "protobuf"]  # with those that they need
ABSENT = ["torch", "hydra", "vitlab", "pandas", "scipy", "simplejpeg"]
pytestmark = [pytest.mark.slow, pytest.mark.ci]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A folder with an environment that has the wheel and LIBRARIES, by links to those installed here."""
    home = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home]
    subprocess.run(build, cwd=ROOT / "runtime", check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    venv.create(home / "venv", symlinks=True)
    scheme = {"base": str(home / "venv"), "platbase": str(home / "venv")}
    places = Path(sysconfig.get_paths("venv", vars=scheme)["purelib"])
    for name in LIBRARIES:
        tops = {file.parts[0] for file in metadata.files(name)} - {"..", "__pycache__"}
        for top in tops - set(os.listdir(places)):
            (places / top).symlink_to(metadata.distribution(name).locate_file(top))
    bare = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    pip = [sys.executable, "-m", "pip", "--python", home / "venv", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", wheel], env=bare, check=True)
    return home / "venv" / "bin", bare


def test_it_answers_as_vitlab_predict_where_torch_cannot_be_imported(environment, cli, digits_run, tmp_path):
    def run(name, *words):
        home, bare = environment
        return subprocess.run([home / name, *words], cwd=tmp_path, env=bare, capture_output=True, text=True)

    for name in ABSENT:
        assert "ModuleNotFoundError" in run("python", "-c", f"import {name}").stderr
    draw_images(tmp_path / "images")
    write_bundle_of_run(tmp_path / "bundle", digits_run)
    done = run("vitlab-predict", "bundle", "images", "--top-k", "3", "--output", "own.csv")
    assert done.returncode == 3, done.stderr
    assert cli("predict", f"run={digits_run}", "images=images", "top_k=3", "output=theirs.csv").status == 3
    assert read_table(tmp_path / "own.failed.csv") == read_table(tmp_path / "theirs.failed.csv")
    (head, *own), (expected_head, *expected) = (read_table(tmp_path / f"{name}.csv") for name in ("own", "theirs"))
    assert head == expected_head
    assert len(own) == len(expected) == 55
    rounding = {f"probability_{rank}": 2e-6 for rank in (1, 2, 3)} | {"novelty": 1e-4}  # which vitlab gives four digits
    for found, row in zip(own, expected, strict=True):
        for name, cell, expected_cell in zip(head, found, row, strict=True):
            if name in rounding:
                assert float(cell) == pytest.approx(float(expected_cell), rel=1e-5, abs=rounding[name])
            else:
                assert cell == expected_cell


def draw_images(folder):
    """Draw digits, larger noise in colours, and a file that is cut off."""
    folder.mkdir()
    pool = Digits().open()["train"]
    for k in range(50):
        Image.fromarray(pool.load(k)).save(folder / f"{k:02}.png")
    for k in range(5):
        Image.fromarray(noise(30 + k, 50, 3)).save(folder / f"noise_{k}.jpg")
    (folder / "cut.png").write_bytes((folder / "00.png").read_bytes()[:60])


def write_bundle_of_run(folder, run):
    """Write the bundle of a run on the digits."""
    saved = SavedRun.open(str(run))
    task, datamodule = saved.task().eval(), saved.datamodule()
    crop = datamodule.images.eval_crop
    preprocessing = {
        "mode": datamodule.images.mode,
        "channels": datamodule.in_chans,
        "image_size": crop.image_size,
        "resize_size": getattr(crop, "resize_size", None),
        "interpolation": crop.interpolation,
        "mean": datamodule.preprocessing.mean.flatten().tolist(),
        "std": datamodule.preprocessing.std.flatten().tolist(),
    }
    scorer = Scorer(task.model, task.probabilities, task.known).eval()
    return write_bundle(folder, scorer, saved.checkpoint["run"]["class_names"], preprocessing)


def read_table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
