"""What only a GPU can show of the way that batches take to it: python -m pytest -m gpu."""

import json

import pytest
import torch
from conftest import BARE, chosen
from torch.utils.data import Dataset

from vitlab.data.batches.batch import RawBatch
from vitlab.data.loading.loader import Loader

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

PIXELS = 2**20
FRAGMENTS = 24 * 2**20  # bytes: one more segment of the allocator; a stream each time would take 2 MiB 40 times


class Numbers(Dataset):
    """Batches of one image that is full of its number."""

    def __getitems__(self, keys):
        image = torch.full((1, 1, 1, PIXELS), keys[0], dtype=torch.uint8)
        return RawBatch((image,), torch.tensor(keys), torch.tensor(keys))


def loader(batches=20, num_workers=0):
    order = [[k] for k in range(batches)]
    settings = {"prefetch_batches": 2 if num_workers else None, "stall_timeout": 60}
    return Loader(Numbers(), order, num_workers=num_workers, device=torch.device("cuda", 0), **settings)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_is_whole_when_a_slow_model_comes_to_it(num_workers):
    """The copies run ahead of a device that is kept busy: none may overwrite what it has still to read."""
    seen = []
    for batch in loader(num_workers=num_workers):
        torch.cuda._sleep(20_000_000)
        seen.append(batch.view.float().mean())  # later than the next copy begins
        del batch
    assert torch.stack(seen).tolist() == list(range(20))


def test_memory_does_not_grow_with_the_iterations():
    """Memory that is taken on a stream is kept for it: a stream for each iteration would take it anew each time."""
    held = []
    for _ in range(40):
        for batch in loader(batches=4):
            batch.view.float().sum()
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_reserved())
    assert held[-1] - held[2] <= FRAGMENTS


def test_memory_does_not_grow_with_the_epochs_of_a_run(cli, monkeypatch):
    from vitlab.callbacks import Progress

    held = []
    ends = Progress.on_validation_end

    def measured(self, *args):
        held.append(torch.cuda.memory_reserved())
        ends(self, *args)

    monkeypatch.setattr(Progress, "on_validation_end", measured)
    options = [
        *BARE,
        "model=vit_mu4",
        "trainer=gpu",
        "logger=none",
        "data.loading.num_workers=2",
        "trainer.max_epochs=40",
    ]
    run = cli("train", *options, folder="run", tiny=False)
    assert run.status == 0, run.err
    assert len(held) == 40
    assert held[-1] - held[3] <= FRAGMENTS


def test_what_runs_on_a_gpu_leaves_the_products_of_the_cpu_alone(cli):
    """With oneDNN's products torch refuses to be asked for the precision of a GPU's."""
    options = [*BARE, "model=vit_mu4", "trainer=gpu", "logger=none", "trainer.max_epochs=1"]
    assert cli("train", *options, folder="run", tiny=False).status == 0
    before = torch.backends.mkldnn.matmul.fp32_precision
    assert before != "bf16"
    assert cli("features", "run=run", "output=features.npz").status == 0
    assert cli("probe", "run=run").status == 0
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.slow
def test_one_process_by_nccl_is_one_without(cli, tmp_path):
    """In a process of its own each: a process group lasts as long as its process."""
    import subprocess
    import sys

    from conftest import SRC

    for strategy in ("ddp", "auto"):
        options = [
            *BARE,
            "model=vit_mu4",
            "trainer=gpu",
            "logger=none",
            "data.loading.num_workers=0",
            "trainer.max_epochs=2",
        ]
        options += ["trainer.precision=32-true", f"trainer.strategy={strategy}", f"hydra.run.dir={strategy}"]
        command = [sys.executable, str(SRC / "train.py"), *chosen(*options)]
        process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
        assert process.returncode == 0, process.stderr
    tested = [json.loads((tmp_path / name / "result.json").read_text())["test"] for name in ("ddp", "auto")]
    assert tested[0] == pytest.approx(tested[1], abs=1e-3)
