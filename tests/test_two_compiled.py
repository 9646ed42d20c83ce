"""Two processes with what only NCCL or a compiler brings: evaluation in inference mode, and no graph is compiled anew
after a validation."""

import json

import pytest
from conftest import FEW
from two_processes import TWO, status_of, two_processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SHORT = [*FEW, "trainer.max_steps=6", "trainer.max_epochs=-1", "+trainer.val_check_interval=2", "optimizer.lr=1e-3"]
AVERAGED = ["callbacks=[default,ema]", "callbacks.ema.decay=0.5", "callbacks.latest_state.every_n_steps=1"]
WITHOUT_PICTURES = ["~callbacks.evaluation_report", "~callbacks.batch_picture", "~callbacks.model_views"]
FORCED = """
import pytorch_lightning.loops.utilities as loops
loops._distributed_is_initialized = lambda: False  # so that Lightning does not take no_grad because of gloo
"""
NOTED = """
import torch
from vitlab.tasks import Task
own = Task.test_step
def noted(self, *arguments):
    open(f"mode{rank}", "a").write(str(int(torch.is_inference_mode_enabled())))
    return own(self, *arguments)
Task.test_step = noted
"""
COUNTED = """
import functools, torch
torch.nn.Module.compile = functools.partialmethod(torch.nn.Module.compile, backend="aot_eager")
from torch._dynamo.utils import counters
from vitlab.tasks import Task
own = Task.on_validation_epoch_end
def counted(self):
    own(self)
    with open(f"graphs{rank}", "a") as file:
        print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()), file=file)
Task.on_validation_epoch_end = counted
"""


def words(strategy):
    trainer = [f"trainer={strategy}" if word == "trainer=ddp" else word for word in TWO]
    return [*(word for word in trainer if not word.startswith("~")), *WITHOUT_PICTURES]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_an_average_is_validated_between_steps_and_tested_in_inference_mode(tmp_path, strategy):
    """Lightning validates between steps in no_grad, and tests in inference mode: with NCCL, and here with gloo too."""
    options = [*SHORT, *AVERAGED]
    losses = {}
    for mode, patch in (("inference", FORCED + NOTED), ("no_grad", NOTED)):
        (tmp_path / mode).mkdir()
        with two_processes(tmp_path / mode, *options, patch=patch, words=words(strategy)) as first:
            assert status_of(first, tmp_path / mode, seconds=400) == 0, (tmp_path / mode / "err").read_text()
        modes = {(tmp_path / mode / f"mode{rank}").read_text() for rank in range(2)}
        assert set("".join(modes)) == {str(int(mode == "inference"))}
        losses[mode] = json.loads((tmp_path / mode / "run" / "result.json").read_text())["test"]
    assert losses["inference"] == losses["no_grad"]


@pytest.mark.parametrize(("strategy", "recomputes"), [("ddp", "true"), ("fsdp", "false")])
def test_a_validation_makes_no_graph_anew(tmp_path, strategy, recomputes):
    options = [*SHORT, "compile=true", f"activation_checkpointing={recomputes}"]
    with two_processes(tmp_path, *options, patch=COUNTED, words=words(strategy)) as first:
        assert status_of(first, tmp_path, seconds=400) == 0, (tmp_path / "err").read_text()
    for rank in range(2):
        counts = [tuple(map(int, line.split())) for line in (tmp_path / f"graphs{rank}").read_text().splitlines()]
        assert len(counts) >= 3
        assert counts == counts[:1] * len(counts), counts
        graphs, breaks = counts[0]
        assert graphs > 0
        assert breaks == 0
