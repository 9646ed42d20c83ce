"""A compiled model trains, is scored, saved and gone on with as one that is not, also when images change their size."""

import csv
import json

import pytest
import torch
from conftest import BARE

from vitlab.checkpoints import file

OPTIONS = [*BARE, "model.depth=1", "global_batch_size=256", "trainer.max_epochs=2", "resolution=progressive"]
OPTIONS += ["trainer.log_every_n_steps=1", "optimizer.lr=1e-3"]


def rows(folder, name):
    with open(folder / "metrics.csv", newline="") as lines:
        return [float(row[name]) for row in csv.DictReader(lines) if row[name]]


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("aot_eager", marks=pytest.mark.slow),  # all but the kernels
        pytest.param("inductor", marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)]),
    ],
)
def test_sizes_that_change_are_compiled_one_by_one(cli, monkeypatch, backend):
    torch.compiler.reset()
    compile_in_place = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **options: compile_in_place(self, backend=backend, **options)
    )
    compiled = cli("train", *OPTIONS, "compile=true", folder="compiled")
    assert compiled.status == 0, compiled.err
    assert "recompile_limit" not in compiled.err
    eager = cli("train", *OPTIONS, folder="eager")
    assert eager.status == 0, eager.err
    for name in ("train/loss", "val/loss"):
        assert rows(compiled.folder, name) == pytest.approx(rows(eager.folder, name), abs=1e-4)
    states = [file.read(run.folder / "checkpoints" / "latest.ckpt")["state_dict"] for run in (compiled, eager)]
    assert states[0].keys() == states[1].keys()
    results = [json.loads((run.folder / "result.json").read_text())["test"] for run in (compiled, eager)]
    assert results[0]["test/loss"] == pytest.approx(results[1]["test/loss"], abs=1e-4)


def test_a_size_of_its_own_for_each_share_is_counted(cli, monkeypatch):
    """The default limit of 8 would leave a schedule of many sizes half compiled, in silence."""
    calls = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: calls.append(options))
    sizes = ["resolution.scales=[0.25,0.375,0.5,0.625,0.75,0.875]", "resolution.until=[0.1,0.2,0.3,0.4,0.5,0.6]"]
    with torch._dynamo.config.patch(recompile_limit=8):
        assert cli("train", *OPTIONS, *sizes, "compile=true", "trainer.max_epochs=1", folder="run").status == 0
        assert calls == [{"dynamic": False}]
        assert torch._dynamo.config.recompile_limit == 15
