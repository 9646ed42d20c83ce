"""The training of a run is a page of stages, of which one finds what the config leaves open."""

import ast
import inspect
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from conftest import TINY
from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError
from own_images import colour, pngs

from vitlab.checkpoints import run_lock
from vitlab.data import Folder
from vitlab.programs import train

ROOT = Path(__file__).parents[2]


def test_the_plan_lists_the_stages_in_order():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("## The path of a run")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    stated = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    tree = ast.parse(inspect.getsource(train))
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    own |= {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitlab.run.")
        for alias in node.names
    }
    (function,) = [node for node in tree.body if getattr(node, "name", "") == "train"]
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    assert stated == [call.func.id for call in calls if call.func.id in own]


def test_values_are_filled_into_the_config_in_one_place():
    sources = {file: file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py")}
    calls = [file.stem for file, text in sources.items() for _ in re.findall(r"(?<!def )\bfill_in\(", text)]
    assert calls == ["autoconfig"]


OWN = ["trainer.max_steps=1", "data=folder", "data.source.root=own", "data.source.index_root=null"]


def test_the_config_is_read_only_once_values_are_found_and_the_data_is_opened_once(cli, tmp_path, monkeypatch):
    pngs(tmp_path / "own", {"a": 20, "b": 20}, colour)
    opened, configs = [], []
    real_open, real_build = Folder.open, train.build

    def counted(self):
        opened.append(self)
        return real_open(self)

    def watched(start, *arguments, **options):
        configs.append((start.cfg, OmegaConf.to_container(start.cfg)))
        return real_build(start, *arguments, **options)

    monkeypatch.setattr(Folder, "open", counted)
    monkeypatch.setattr(train, "build", watched)
    run = cli("train", *OWN, folder="run")
    assert run.status == 0, run.err
    assert len(opened) == 1
    ((cfg, before),) = configs
    assert (cfg.data.image_size, cfg.data.num_classes) == (40, 2)
    with pytest.raises(ReadonlyConfigError):
        cfg.data.image_size = 8
    assert OmegaConf.to_container(cfg) == before
    assert yaml.safe_load((run.folder / "config.yaml").read_text())["found"] == before["found"]

    assert cli("check", *TINY, *OWN, "seconds=0.05").status == 0
    assert len(opened) == 2


def test_a_config_shows_what_it_leaves_open(cli, tmp_path):
    run = cli("train", *OWN, "--cfg", "job")
    assert run.status == 0, run.err
    shown = yaml.safe_load(run.out)
    assert (shown["data"]["image_size"], shown["data"]["mean"], shown["global_batch_size"]) == (None, None, "auto")


def test_a_resume_looks_at_no_image(cli, tmp_path, monkeypatch):
    pngs(tmp_path / "own", {"a": 20, "b": 20}, colour)
    first = cli("train", *OWN, folder="run")
    assert first.status == 0, first.err
    before = yaml.safe_load((first.folder / "config.yaml").read_text())["found"]

    def never(*arguments):
        raise AssertionError("looked again")

    for name in ("glance", "shrink_images", "choose_batch_size", "find_run_precision"):
        monkeypatch.setattr(f"vitlab.run.building.autoconfig.{name}", never)
    run = cli("train", "resume=run", "trainer.max_steps=2", tiny=False)
    assert run.status == 0, run.err
    assert yaml.safe_load((first.folder / "config.yaml").read_text())["found"] == before


@pytest.mark.parametrize("entry", ["train", "check"])
def test_callbacks_that_cannot_be_built_are_refused_before_the_data_is_opened(cli, tmp_path, monkeypatch, entry):
    pngs(tmp_path / "own", {"a": 20, "b": 20}, colour)
    opened = []
    monkeypatch.setattr(Folder, "open", lambda self: opened.append(self))
    run = cli(entry, *OWN, "model=vit_mu4", "callbacks.latest_state.every_n_steps=-1", "logger=none")
    assert run.status == 2, run.err
    assert "every_n_steps" in run.err
    assert opened == []


def test_a_finished_run_that_is_resumed_keeps_its_record(cli, short_run, tmp_path):
    shutil.copytree(short_run, tmp_path / "run")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()}
    again = cli("train", "resume=run", "logger=wandb", tiny=False)
    assert again.status == 0, again.err
    assert again.out.splitlines()[-1] == "run is complete; to train it for longer, add trainer.max_epochs=4"
    run_lock.leave_all()
    checked = cli("check", "resume=run", "seconds=0.05")
    assert "is complete; to train it for longer" in checked.out
    after = {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} <= {tmp_path / "run" / ".lock"}
    (tmp_path / "run" / "result.json").unlink()  # as of a run whose test failed
    tested = cli("train", "resume=run", tiny=False)
    assert tested.status == 0, tested.err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["steps_of_this_start"], result["images_per_second"]) == (0, None)
    guide = (tmp_path / "run" / "README.md").read_text()
    for command in ("evaluate", "predict", "report", "go on"):
        (printed,) = [line for line in tested.out.splitlines() if line.startswith(command)]
        assert printed.removeprefix(command).strip() in guide.splitlines()
    assert "| `test_image.*` |" in guide
