"""A compiled model trains, is scored, saved and gone on with as one that is not, also when images change their size."""

import csv
import json
import os
import platform
import subprocess
import sys

import pytest
import torch
from conftest import BARE
from hydra import compose, initialize_config_dir

from vitlab.checkpoints import file
from vitlab.config.home import CONF
from vitlab.run.building.model import build_model, compile_model

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


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("preset", ["vit_ti16", "deit3_s16"])
def test_a_deeper_model_has_no_more_graphs(preset):
    """Drop path has another rate in each block, which must not be a number that a graph is compiled for."""
    counts = []
    for depth in (2, 4):
        torch._dynamo.reset()
        graphs = []
        words = [f"model={preset}", "data=digits", f"model.depth={depth}", "model.drop_path_rate=0.1"]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = compose("train", overrides=[*words, "data.image_size=32", "model.patch_size=8"])
        with torch.device("meta"):
            model = build_model(cfg.model).train()
            images = torch.empty(2, cfg.data.in_chans, 32, 32)
        model.compile(backend=lambda graph, inputs, graphs=graphs: graphs.append(graph) or graph.forward, dynamic=False)
        model(images)
        counts.append(len(graphs))
    assert counts == [1, 1]


@pytest.mark.parametrize(
    ("mode", "by_block", "options"),
    [
        (True, False, {"dynamic": False}),
        ("reduce-overhead", False, {"dynamic": False, "mode": "reduce-overhead"}),
        ("max-autotune", True, {"dynamic": False, "mode": "max-autotune-no-cudagraphs"}),
    ],
)
def test_a_mode_is_handed_to_torch_and_sharded_blocks_have_no_cuda_graphs(monkeypatch, mode, by_block, options):
    calls = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **given: calls.append(given))
    model = torch.nn.Module()
    model.blocks = torch.nn.ModuleList([torch.nn.Linear(1, 1)])
    compile_model(model, 1, by_block=by_block, mode=mode)
    assert calls == [options]


def test_a_size_of_its_own_for_each_share_is_counted(cli, monkeypatch):
    """The default limit of 8 would leave a schedule of many sizes half compiled, in silence."""
    calls = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: calls.append(options))
    sizes = ["resolution.scales=[0.25,0.375,0.5,0.625,0.75,0.875]", "resolution.until=[0.1,0.2,0.3,0.4,0.5,0.6]"]
    with torch._dynamo.config.patch(recompile_limit=8):
        assert cli("train", *OPTIONS, *sizes, "compile=true", "trainer.max_epochs=1", folder="run").status == 0
        assert calls == [{"dynamic": False}]
        assert torch._dynamo.config.recompile_limit == 15


COMPILED = """
import torch
from vitlab.run.building.model import compile_model

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(48, 40), torch.nn.GELU(), torch.nn.LayerNorm(40))
images = torch.randn(9, 48)
eager = model(images)
compile_model(model, 1, by_block=False)
torch.testing.assert_close(model(images), eager, atol=1e-5, rtol=0)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86-64")
def test_kernels_for_other_instructions_are_not_taken_from_the_cache(tmp_path):
    for chosen in [{}, {"ATEN_CPU_CAPABILITY": "avx2"}, {"ATEN_CPU_CAPABILITY": "default"}, {}]:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), **chosen}
        run = subprocess.run([sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, (chosen, run.stderr)
