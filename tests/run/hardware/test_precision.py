"""trainer.precision=auto: what a block of the model was measured to be faster in, once for a machine."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from conftest import SRC, TINY, refuses, vit_options
from two_processes import ENTRY, TWO

from vitlab.checkpoints import file
from vitlab.distributed import agreement
from vitlab.measurements import FILE
from vitlab.models import VisionTransformer
from vitlab.run.hardware import precision
from vitlab.run.hardware.block_timing import FEW, set_products
from vitlab.run.hardware.precision import (
    ONEDNN,
    PLAIN,
    find_precision,
    restore_float32_products,
    speed_up_float32_products,
)

CPU = torch.device("cpu")
SLOW, FAST = {"32-true": 0.5, "bf16-mixed": 0.7}, {"32-true": 0.5, "bf16-mixed": 0.2}
AUTO = ["trainer.precision=auto", "trainer.max_steps=2"]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "vitlab" / "measurements" / FILE
    restore_float32_products()


@pytest.fixture
def measuring(monkeypatch):
    """measuring(seconds): what every trial gives from now on; the list of those that were asked for grows. Products of
    float32 matrices are not tried."""
    monkeypatch.setattr(precision, "are_exact", lambda: False)

    def fake(seconds):
        asked = []
        monkeypatch.setattr(precision, "least_seconds", lambda call, size, ways: asked.append(call) or seconds)
        return asked

    return fake


def vit(**changes):
    return VisionTransformer(**vit_options(**changes))


def images(chans=1, size=32):
    return torch.empty(FEW, chans, size, size, device="meta")


def found(model=None, inputs=None, device=CPU):
    return find_precision(model or vit(), (images() if inputs is None else inputs,), 8, device)


# -- a run


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "chosen"), [(SLOW, "32-true"), (FAST, "bf16-mixed")])
def test_a_run_computes_in_what_is_faster_and_keeps_it(cli, measuring, seconds, chosen):
    measuring(seconds)
    run = cli("train", *AUTO, folder="run")
    assert run.status == 0, run.err
    lines = dict(line.split(maxsplit=1) for line in run.out.splitlines() if line.startswith(("measured", "dev", "fou")))
    ratio = seconds["bf16-mixed"] / seconds["32-true"]
    assert lines["measured"] == f"bfloat16 takes {ratio:.0%} of the time of float32, in a Block on 64 x 65 x 32"
    assert lines["device"].endswith(f"precision {chosen}")
    assert lines["found"] == f"trainer.precision={chosen}"
    saved = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert (saved["trainer"]["precision"], saved["found"]) == (chosen, {"precision": chosen})
    config = file.read(run.folder / "checkpoints" / "latest.ckpt")["run"]["config"]
    assert (config["trainer"]["precision"], config["found"]) == (chosen, {"precision": chosen})

    assert not (asked := measuring(FAST if seconds is SLOW else SLOW))
    more = cli("train", "resume=run", "trainer.max_steps=3", tiny=False)
    assert more.status == 0, more.err
    assert f"precision {chosen}" in more.out
    assert not asked


def test_a_run_is_the_same_whether_it_measures_or_was_measured_before(cli, own_cache):
    one, two = (cli("train", *AUTO, folder=name) for name in ("one", "two"))
    assert (one.status, two.status) == (0, 0), one.err + two.err
    assert len(json.loads(own_cache.read_text())) in (1, 2)  # with the products, where they are exact
    first, second = (file.read(run.folder / "checkpoints" / "latest.ckpt")["state_dict"] for run in (one, two))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("stated", [pytest.param("bf16-mixed", marks=pytest.mark.slow), "32-true"])
def test_a_precision_that_is_stated_is_not_measured(cli, measuring, monkeypatch, stated):
    monkeypatch.setattr(precision, "are_exact", lambda: stated == "bf16-mixed")
    asked = measuring(FAST)
    run = cli("train", f"trainer.precision={stated}", "trainer.max_steps=1", folder="run")
    assert run.status == 0, run.err
    assert f"precision {stated}" in run.out
    assert "measured" not in run.out
    assert not asked


def test_a_check_measures_for_the_training_that_comes(cli, measuring):
    asked = measuring(FAST)
    words = [word for word in TINY if "precision" not in word]
    check = cli("check", *words, "seconds=0")
    assert check.status == 0, check.err
    assert "measured bfloat16 takes 40% of the time of float32" in check.out
    assert "precision bf16-mixed" in check.out
    assert cli("train", *AUTO).status == 0
    assert len(asked) == 1


def test_an_evaluation_has_the_precision_of_its_run(cli, short_run):
    assert refuses(cli("evaluate", f"run={short_run}", "trainer.precision=auto"), "precision=auto is chosen only")


# -- the choice


@pytest.mark.parametrize(("bf16", "chosen"), [(0.89, "bf16-mixed"), (0.91, "32-true"), (1.5, "32-true")])
def test_bfloat16_has_to_save_a_tenth(measuring, bf16, chosen):
    measuring({"32-true": 1.0, "bf16-mixed": bf16})
    assert found().precision == chosen


def test_a_machine_too_busy_stays_in_float32_and_nothing_is_kept(measuring, own_cache):
    asked = measuring(None)
    assert found().precision == "32-true"
    assert [type(call.module).__name__ for call in asked] == ["Block", "Linear"]
    assert not own_cache.exists()


def test_a_layer_stands_in_for_long_blocks_and_for_what_cannot_be_called(measuring):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    asked = measuring(FAST)
    wide = vit(embed_dim=1024, num_heads=16, image_size=64, depth=1)
    for model, inputs in ((wide, images(size=64)), (Odd(), images())):
        assert "in a Linear on 8 x 197 x 384" in found(model, inputs).measured
    assert len(asked) == 1


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_is_not_measured(measuring, monkeypatch, supported):
    asked = measuring(SLOW)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert found(device=torch.device("cuda")) == ("bf16-mixed" if supported else "32-true", None)
    assert found(device=torch.device("mps")) == ("32-true", None)
    assert not asked


@pytest.mark.parametrize(
    ("exact", "oneDNN", "on"), [(True, 0.5, True), (True, 0.95, False), (True, None, False), (False, 0.1, False)]
)
def test_float32_products_are_sped_up_where_that_is_exact_and_faster(measuring, monkeypatch, exact, oneDNN, on):
    monkeypatch.setattr(precision, "are_exact", lambda: exact)
    asked = measuring(oneDNN and {PLAIN: 1.0, ONEDNN: oneDNN})
    for _ in range(2):
        assert speed_up_float32_products(CPU) is on
        assert set_products(None) == (ONEDNN if on else PLAIN)
    assert len(asked) == exact * (1 if oneDNN else 2)


# -- several processes


def test_processes_of_a_run_are_told_what_the_first_has_found(monkeypatch):
    monkeypatch.delenv("VITLAB_PRECISION", raising=False)
    monkeypatch.setattr(agreement, "has_other_launched_processes", lambda: False)
    assert agreement.decide_on_rank_zero("precision", lambda: ["bf16-mixed", None]) == ["bf16-mixed", None]
    monkeypatch.setattr(agreement, "is_started_by_this_run", lambda: True)
    assert agreement.decide_on_rank_zero("precision", lambda: pytest.fail("decided anew")) == ["bf16-mixed", None]


RANKS = """
import vitlab.run.hardware.precision
from vitlab.tasks import Classification
def timed(call, size, ways):
    return {"32-true": 1.0, "bf16-mixed": 0.5 if rank == "0" else 2.0}
def noted(task):
    with open("precision_" + rank, "w") as file:
        file.write(task.trainer.precision)
vitlab.run.hardware.precision.time_ways, Classification.on_fit_start = timed, noted
vitlab.run.hardware.precision.are_exact = lambda: False
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher", [[], ["-m", "torch.distributed.run", "--nproc-per-node=2"]], ids=["ours", "torchrun"]
)
def test_all_processes_compute_in_what_the_first_has_found(tmp_path, launcher):
    (tmp_path / "entry.py").write_text(ENTRY.format(src=str(SRC), patch=RANKS), encoding="utf-8")
    command = [sys.executable, *launcher, "entry.py", *TWO, *AUTO, "~callbacks.evaluation_report", "hydra.run.dir=run"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stderr
    assert [(tmp_path / f"precision_{rank}").read_text() for rank in "01"] == ["bf16-mixed", "bf16-mixed"]
    assert run.stdout.count("measured bfloat16 takes 0.50 times") == 1


@pytest.mark.slow
def test_the_jobs_of_a_sweep_share_a_measurement(cli, own_cache):
    words = ["-m", *AUTO, "sweep=two", "seed=0,1", "engine.slots=2", "engine.preload=false"]
    assert cli("train", *words, tiny=True).status == 0
    folders = sorted(Path("runs/two").glob("seed-*"))
    assert len(folders) == 2
    said = [re.findall("measured (.*)", (folder / "train.log").read_text()) for folder in folders]
    assert said[0] == said[1]
    assert len(said[0]) == 1
    assert sum("Block" in subject for subject in json.loads(own_cache.read_text())) == 1
