"""Where memory runs out, one sentence says which batch did not fit and what would; what it says fits."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import SRC
from PIL import Image

from vitlab.layers import Block

FROZEN = Path(__file__).parent / "earlier_version" / "run"
CPU = (
    "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "402653184 bytes. Error code 12 (Cannot allocate memory)"
)
CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1 GiB is free."
ONEDNN = "could not create a primitive"
ERRORS = [RuntimeError(CPU), RuntimeError(ONEDNN), MemoryError("std::bad_alloc"), torch.OutOfMemoryError(CUDA)]
ERRORS += [OSError(12, "no memory")]
LIMITED = """
import resource, runpy, sys
from pathlib import Path
import vitlab.programs.train
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30,) * 2)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def refused(run, *words):
    """Status 2, and one sentence on stderr that holds the words."""
    lines = [line for line in run.err.splitlines() if line.startswith("ConfigError: ")]
    assert run.status == 2, run.err
    assert "Traceback" not in run.err
    assert len(lines) == 1, run.err
    for word in words:
        assert word in lines[0]
    return lines[0]


@pytest.fixture
def most(monkeypatch):
    """most(size, error): no larger batch fits through a block."""

    def limit(size, error):
        forward = Block.forward

        def limited(self, inputs, *arguments, **options):
            if inputs.shape[0] > size:
                raise error
            return forward(self, inputs, *arguments, **options)

        monkeypatch.setattr(Block, "forward", limited)

    return limit


OPTIONS = ["global_batch_size=60", "trainer.max_epochs=1", "~callbacks.model_views"]


@pytest.mark.ci
@pytest.mark.slow
def test_what_is_said_to_fit_does_fit(cli, most):
    most(20, RuntimeError(CPU))
    run = cli("train", *OPTIONS, "data.device_batch_size=30", folder="run")
    refused(run, "a batch of 30 on a device of", "set data.device_batch_size=15", "are counted to fit")
    done = cli("train", *OPTIONS, "data.device_batch_size=15", folder="run2")
    assert done.status == 0, done.err


@pytest.mark.parametrize("pages", [100, 1700])
def test_no_more_is_named_than_is_counted(cli, most, monkeypatch, pages):
    most(2, RuntimeError(CPU))
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": pages, "SC_PAGE_SIZE": 4096}.__getitem__)
    sentence = refused(cli("train", *OPTIONS, folder="run"), f"a batch of 60 on a device of {pages / 256:.2f} MiB")
    if pages == 100:
        assert "smaller images (data.image_size), another model" in sentence
    else:
        named, count = map(
            int, re.search(r"data\.device_batch_size=(\d+) \((\d+) are counted to fit", sentence).groups()
        )
        assert named <= count < 30
        assert 60 % named == 0


def test_evaluation_names_a_smaller_batch(cli, most):
    most(10, MemoryError())
    size = int(re.search(r"batch of (\d+)", refused(cli("evaluate", f"run={FROZEN}", "output=out")))[1])
    sentence = refused(cli("evaluate", f"run={FROZEN}", "output=out"), f"data.device_batch_size={size // 2}")
    assert "data.device_batch_size=0" not in sentence


@pytest.fixture
def predict(cli, tmp_path):
    """predict(batch_size): six images through a finished run."""
    (tmp_path / "new").mkdir()
    for i in range(6):
        Image.new("L", (8, 8)).save(tmp_path / "new" / f"{i}.png")
    return lambda size: cli("predict", f"run={FROZEN}", "images=new", "output=out.csv", f"batch_size={size}")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_batch_to_predict_is_halved_whoever_says_that_memory_ran_out(predict, most, error):
    most(3, error)
    refused(predict(6), "with batch_size=6 images at once; set batch_size=3")
    assert predict(3).status == 0


def test_a_single_image_is_not_halved(predict, most):
    most(0, MemoryError())
    refused(predict(1), "with a single image at once")


def test_a_batch_of_features_is_halved(cli, most):
    most(2, RuntimeError(CPU))
    run = cli("features", f"run={FROZEN}", "output=out.npz", "split=val", "batch_size=6")
    refused(run, "with batch_size=6 images at once; set batch_size=3")


def test_a_split_that_a_device_does_not_hold_is_named(cli, monkeypatch):
    to = torch.Tensor.to

    def limited(self, *arguments, **options):
        if self.dtype == torch.uint8 and self.ndim == 4 and len(self) > 1000:
            raise torch.OutOfMemoryError(CUDA)
        return to(self, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "to", limited)
    run = cli(
        "train",
        "data.cache.kind=device",
        "data.images.train_transform=null",
        "augmentation=none",
        "trainer.max_epochs=1",
        folder="run",
    )
    refused(run, "images of 0.00 GB on cpu", "data.cache.kind=decoded")


def test_a_lack_of_memory_anywhere_else_is_one_sentence_too(cli):
    refused(cli("train", "data=synthetic", "data.source.num_samples=1000000000000", folder="run"), "memory")


def test_an_error_of_another_kind_is_left_as_it_is(cli, most):
    most(0, RuntimeError("shapes differ"))
    run = cli("train", folder="run")
    assert (run.status, "RuntimeError: shapes differ" in run.err) == (1, True), run.err


@pytest.mark.slow
def test_memory_that_really_runs_out(tmp_path):
    """A process is allowed little more than it has once libraries are loaded, and a step takes gigabytes."""
    words = ["model=vit_ti16", "data=synthetic", "data.image_size=224", "data.source.num_samples=900"]
    words += ["global_batch_size=500", "data.loading.num_workers=0"]  # workers would run out first
    command = [sys.executable, "-c", LIMITED, str(SRC / "train.py"), *words, f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    run = SimpleNamespace(status=done.returncode, err=done.stderr)
    refused(run, "memory ran out with a batch of 500 on a device of", "set data.device_batch_size=")
