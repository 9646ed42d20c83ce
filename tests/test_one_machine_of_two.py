"""A run that two machines have begun is looked at, and gone on with, by one."""

import json
import os
import socket
import subprocess
import sys

import pytest
from conftest import FEW, SRC, TINY, chosen, evaluated, refuses

pytestmark = pytest.mark.slow

WORDS = [*TINY, *FEW, "~callbacks.batch_picture", "~callbacks.model_views", "trainer=hsdp", "trainer.accelerator=cpu"]
WORDS += ["trainer.precision=32-true", "trainer.devices=1", "trainer.num_nodes=2", "trainer.max_epochs=1"]


@pytest.fixture(scope="module")
def run_of_two(tmp_path_factory):
    """A run of two processes, each started by hand as that of a machine by itself."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word for word in WORDS if word != "trainer=cpu"]
    command = [sys.executable, str(SRC / "train.py"), *chosen(*words, "hydra.run.dir=run")]
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environments = [{**os.environ, **own, "NODE_RANK": str(number)} for number in range(2)]
    with open(folder / "log", "w") as log:
        starts = [subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=one) for one in environments]
        statuses = [start.wait(250) for start in starts]
    assert statuses == [0, 0], (folder / "log").read_text()[-4000:]
    return folder / "run"


def test_whatever_reads_it_needs_one_machine(run_of_two, cli, picture, tmp_path):
    tested = json.loads((run_of_two / "result.json").read_text())["test"]
    images = [f"images={picture(tmp_path / 'image.png')}"]
    commands = {
        "evaluate": [],
        "predict": images,
        "visualize": images,
        "export": ["format=timm", f"output={tmp_path / 'exported'}"],
        "features": [f"output={tmp_path / 'features.npz'}"],
    }
    for entry, words in commands.items():
        ended = cli(entry, f"run={run_of_two}", *words)
        assert ended.status == 0, (entry, ended.err)
    scored = evaluated(run_of_two)
    assert {name: scored[name] for name in tested} == pytest.approx(tested, rel=1e-5)


def test_it_is_gone_on_with_by_one_machine_that_is_told_to(run_of_two, cli):
    alone = cli("train", f"resume={run_of_two}", "trainer.max_epochs=2", tiny=False)
    assert refuses(alone, "trainer.num_nodes=2 needs processes on each machine, but there is only this one")
    assert "trainer.num_nodes=1" in alone.err
    for words in (["trainer=cpu", "trainer.max_epochs=2"], ["trainer.num_nodes=1", "trainer.max_epochs=3"]):
        ended = cli("train", f"resume={run_of_two}", *words, tiny=False)
        assert ended.status == 0, (words, ended.err)
    assert json.loads((run_of_two / "result.json").read_text())["steps"] == 12
