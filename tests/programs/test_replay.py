"""python src/replay.py, on runs that diverged in several ways."""

import csv
import json
import math
import subprocess
import sys

import pytest
from conftest import BARE, FEW, SRC, TINY, chosen, refuses

from vitlab.tasks import Classification

SHORT = [*TINY, *BARE, *FEW, "trainer.max_epochs=3", "callbacks.latest_state.every_n_steps=2"]  # 12 steps
SHORT += ["trainer.log_every_n_steps=1"]
SAMPLE = 17  # place in the training split of an image whose loss is spoiled from the second epoch on
WILD = ["optimizer=sgd", "optimizer.lr=1e12", "schedule=constant", "schedule.warmup_ratio=0"]


@pytest.fixture
def spoil(monkeypatch):
    losses = Classification.training_losses

    def arm(change):
        def training_losses(self, batch):
            found = losses(self, batch)
            return change(self, found) if SAMPLE in batch.index and self.global_step >= 4 else found

        monkeypatch.setattr(Classification, "training_losses", training_losses)

    return arm


def read_found(folder):
    (place,) = (folder / "replay").iterdir()
    assert {path.name for path in place.iterdir()} == {"replay.json", "modules.csv", "replay.png"}
    with open(place / "modules.csv", newline="") as file:
        return json.loads((place / "replay.json").read_text()), list(csv.DictReader(file))


def test_a_run_that_saved_nothing_begins_anew_and_the_layer_is_named(cli, tmp_path):
    assert cli("train", *SHORT, *WILD, folder="run", tiny=False).status == 5
    done = cli("replay", "run=run")
    assert done.status == 0, done.err
    found, modules = read_found(tmp_path / "run")
    assert found["step"] == 2
    assert found["learning_rate"] == 1e12
    assert len(found["samples"]) == 64
    name = found["first"].split()[3]
    place = [row["module"] for row in modules].index(name)
    assert all(math.isfinite(float(row["outputs"])) for row in modules[:place])
    assert f"step 2: the first value that is not finite is in {found['first']}" in done.out


def test_it_begins_with_the_newest_state_and_names_the_step_that_has_the_sample(cli, spoil, tmp_path):
    spoil(lambda task, losses: losses * math.nan)
    run = cli("train", *SHORT, folder="run", tiny=False)
    assert (run.status, "the training loss is nan at step" in run.err) == (5, True)
    step = int(run.err.split("at step ")[1].split(":")[0])
    before = sorted(path.read_bytes() for path in (tmp_path / "run").rglob("*.*") if path.is_file())
    done = cli("replay", "run=run", "output=said")
    assert done.status == 0, done.err
    assert f"computing the steps from {(step - 1) // 2 * 2} to at most 12 again" in done.out
    found = json.loads((tmp_path / "said" / "replay.json").read_text())
    assert (found["step"], SAMPLE in found["samples"]) == (step, True)
    assert found["first"] == "the loss, computed from finite outputs"
    assert sorted(path.read_bytes() for path in (tmp_path / "run").rglob("*.*") if path.is_file()) == before


def test_a_gradient_of_a_finite_loss_is_named(cli, spoil, tmp_path):
    def root_of_nothing(task, losses):
        return losses + (0 * task.model.get_parameter("blocks.0.mlp.fc1.bias")).abs().sqrt().sum()

    spoil(root_of_nothing)
    assert cli("train", *SHORT, folder="run", tiny=False).status == 5
    assert cli("replay", "run=run").status == 0
    found, _ = read_found(tmp_path / "run")
    assert found["first"] == "the gradient of model.blocks.0.mlp.fc1.bias"
    assert math.isfinite(found["loss"])


def test_what_was_a_fault_of_the_machine_is_not_found_again_in_a_run_that_was_moved(cli, spoil, tmp_path):
    spoil(lambda task, losses: losses * math.nan)
    assert cli("train", *SHORT, folder="run", tiny=False).status == 5
    spoil(lambda task, losses: losses)
    (tmp_path / "run").rename(tmp_path / "moved")
    kept = {path: path.read_bytes() for path in (tmp_path / "moved").rglob("*") if path.is_file()}
    done = cli("replay", "run=moved")
    assert done.status == 0, done.err
    assert "are finite on this machine" in done.out
    assert "was changed" not in done.out  # metrics and best model are found
    assert "best model" not in done.err
    assert {path: path.read_bytes() for path in kept} == kept


def test_a_run_that_has_ended_has_nothing_to_replay(cli, short_run):
    done = cli("replay", f"run={short_run}")
    assert done.status == 0, done.err
    assert "has ended at step 8 with finite weights: there is nothing to replay" in done.out
    assert not (short_run / "replay").exists()


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ([], 2, "run"),
        (["run=nothing"], 4, "there is no run or checkpoint at nothing"),
        (["run=empty"], 4, "holds no latest.ckpt"),
        (["run=damaged"], 4, "config.yaml is damaged"),
        (["run=damaged", "steps=3"], 2, "there is no key steps"),
    ],
)
def test_what_is_no_run_is_refused_in_a_sentence(cli, tmp_path, words, status, told):
    for name in ("empty", "damaged"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged" / "config.yaml").write_text("a: [\n")
    run = cli("replay", *words)
    assert refuses(run, told), run.err
    assert run.status == status


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_run_of_two_processes_is_computed_by_one(cli, tmp_path, strategy):
    devices = [f"trainer={strategy}", "trainer.accelerator=cpu", "trainer.devices=2", "hydra.run.dir=two"]
    command = [sys.executable, str(SRC / "train.py"), *chosen(*SHORT, *WILD, *devices)]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=200).returncode == 5
    done = cli("replay", "run=two")
    assert done.status == 0, done.err
    found, _ = read_found(tmp_path / "two")
    assert (found["step"], len(found["samples"])) == (2, 64)
