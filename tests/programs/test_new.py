"""A folder for code of one's own works as it is written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FEW

from vitlab.errors import ConfigError
from vitlab.programs.new import check_module_name

SHORT = ["trainer.max_epochs=-1", "trainer.max_steps=2"]


@pytest.fixture
def mylab(cli, tmp_path, monkeypatch):
    run = cli("new", "mylab_of_test")
    assert run.status == 0, run.err
    monkeypatch.chdir(tmp_path / "mylab_of_test")
    monkeypatch.syspath_prepend(str(tmp_path / "mylab_of_test"))
    yield tmp_path / "mylab_of_test"
    sys.modules.pop("mylab_of_test", None)


@pytest.mark.slow
@pytest.mark.ci
def test_its_loss_trains_and_its_run_asks_for_trust(cli, mylab):
    run = cli("train", "--config-dir=conf", "loss=poly", *FEW, *SHORT, folder="run")
    assert run.status == 0, run.err
    assert "run=run 'trust=[mylab_of_test]'" in run.out
    command = json.loads(Path("run/provenance.json").read_text())[0]["command"]
    assert command.split("train.py ")[1].startswith("--config-dir=conf hydra.run.dir=run")
    refused = cli("evaluate", "run=run")
    assert refused.status == 2
    assert (
        "needs code of mylab_of_test, which is not part of vitlab; if you trust it, add trust=[mylab_of_test]"
        in refused.err
    )
    scored = cli("evaluate", "run=run", "trust=[mylab_of_test]")
    assert scored.status == 0, scored.err
    loss = json.loads(Path("run/result.json").read_text())["test"]["test/loss"]
    assert f"{loss:.4f}" in scored.out
    assert cli("train", "resume=run", "trainer.max_steps=3").status == 2
    assert cli("train", "resume=run", "trainer.max_steps=3", "trust=mylab_of_test").status == 0


@pytest.mark.slow
def test_its_own_test_passes(mylab):
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("name", ["my-lab", "3d", "json", "torch", "vitlab", "_private"])
def test_a_name_that_cannot_be_imported_is_refused(name):
    with pytest.raises(ConfigError, match=r"(cannot be the name of a Python module|name of another Python module)"):
        check_module_name(name)


def test_a_folder_that_holds_files_is_refused(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    run = cli("new", "mine")
    assert run.status == 2
    assert "output=mine is not empty" in run.err
