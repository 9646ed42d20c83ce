"""Whole runs, sweeps and W&B's own agents against a stand-in for W&B's server."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import wandb
import yaml
from conftest import BARE, SRC, TINY, chosen, image_folder
from wandb_server import serve

from vitlab.checkpoints.run_lock import read_holder
from vitlab.config.home import EXPERIMENTS
from vitlab.tasks import Classification

SECRETS = ("s3cr3t-from-env", "ss99word", "tok99tok")
STEPS = ["trainer.log_every_n_steps=1", "callbacks.latest_state.every_n_steps=10"]
LONG = [*BARE, *STEPS, "trainer.max_epochs=3"]  # 57 steps


@pytest.fixture
def server(monkeypatch):
    """A server that takes runs, and the environment of a user who has an account on it."""
    for key in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(key, "set by the logger, and taken back after the test")
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    with serve() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        wandb.teardown()  # the service keeps the environment that it was started in
        yield server
        wandb.teardown()
        assert server.unknown == []


def read_column(folder, name):
    """The values of a metric in metrics.csv, with their steps."""
    with open(folder / "metrics.csv", newline="") as lines:
        return [(int(row["step"]), float(row[name])) for row in csv.DictReader(lines) if row.get(name)]


def wait_for_step(pattern, step, process):
    """The folder of the run that matches, once it has logged this step."""
    while process.poll() is None:
        for path in Path().glob(f"{pattern}/metrics.csv"):
            if path.read_text().count("\n") > step:
                return path.parent
        time.sleep(0.01)
    pytest.fail(f"it ended with {process.returncode} before step {step}")


def holds_all_of(run, folder):
    """Whether W&B has each value of metrics.csv once."""
    names = ("train/loss", "train/grad_norm", "val/loss", "val/acc1", "test/loss")
    return all(run.read_metric(name) == read_column(folder, name) != [] for name in names)


@pytest.mark.ci
@pytest.mark.slow
def test_a_run_arrives_with_its_metrics_pictures_config_and_artifacts_and_no_secret(cli, server, tmp_path, monkeypatch):
    monkeypatch.setenv("A_PLACE", "s3cr3t-from-env")
    image_folder(tmp_path / "s3cr3t-from-env", splits=("train", "val", "test"))
    options = ["data=folder", "data.source.root=${oc.env:A_PLACE}", "data.num_classes=2", "data.image_size=32"]
    options += [
        "global_batch_size=4",
        "trainer.max_epochs=1",
        "data.cache.root='https://me:ss99word@host/x?token=tok99tok'",
    ]
    options += ["trainer.log_every_n_steps=1", "logger=wandb", "logger.wandb.artifacts=true"]
    done = cli("train", *options, folder="run", pictures=True)
    assert done.status == 0, done.err
    assert "wandb sync" not in done.out
    (run,) = server.runs.values()
    assert (run.exit_code, run.starts, run.preempting) == (0, 1, False)
    assert holds_all_of(run, done.folder)
    assert run.config["data"]["value"]["source"]["root"] == "<not kept>"
    assert run.config["model"]["value"]["image_size"] == 32  # ${data.image_size} in the YAML
    assert len(run.config["data"]["value"]["mean"]) == 3  # found in the data
    for name in ("training_batch", "test_confusion_matrix", "test_worst_predictions", "attention_rollout"):
        (picture,) = (done.folder / "pictures").glob(f"{name}.png")
        assert picture.read_bytes() in run.files.values(), name
    kinds = {one.kind: one for one in server.artifacts if one.committed}
    best, predictions = (
        (done.folder / name).read_bytes() for name in ("checkpoints/best.ckpt", "test_predictions.csv")
    )
    assert kinds["model"].files == {"best.ckpt": best}
    assert kinds["predictions"].files == {"test_predictions.csv": predictions}
    sent = b"".join(body for body in server.bodies if b"/test/cat/" not in body)  # names of images are not hidden
    assert b"<not kept>" in sent
    for secret in SECRETS:
        assert secret.encode() not in sent, secret


@pytest.mark.slow
def test_a_killed_run_goes_on_under_its_id_and_misses_and_repeats_no_step(cli, server, tmp_path):
    words = chosen(*TINY, *LONG, "logger=wandb", "hydra.run.dir=run")
    with subprocess.Popen([sys.executable, str(SRC / "train.py"), *words], cwd=tmp_path) as process:
        wait_for_step("run", 25, process)
        process.kill()
    (run,) = server.runs.values()
    assert run.exit_code is None
    assert len(run.read_metric("train/loss")) < 25  # W&B sends every 15 seconds
    done = cli("train", "resume=run", tiny=False)
    assert done.status == 0, done.err
    assert (list(server.runs.values()), run.starts, run.exit_code) == ([run], 2, 0)
    assert [step for step, _ in run.read_metric("train/loss")] == list(range(1, 58))
    assert holds_all_of(run, tmp_path / "run")
    assert server.artifacts == []  # without logger.wandb.artifacts=true


@pytest.mark.slow
def test_a_run_whose_server_dies_ends_and_says_how_the_rest_is_sent(cli, server, monkeypatch):
    step = Classification.training_step

    def last_words(self, batch, batch_idx):
        server.dead |= self.global_step == 5
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Classification, "training_step", last_words)
    begun = time.monotonic()
    with pytest.warns(UserWarning, match=r"W&B could not finish .* wandb sync \S+ sends the rest"):
        done = cli("train", *LONG, "logger=wandb", "logger.wandb.upload_minutes=0.1", folder="run")
    assert done.status == 0, done.err
    assert time.monotonic() - begun < 90
    assert (done.folder / "metrics.csv").read_text().count("\n") == 58


@pytest.mark.slow
def test_jobs_of_a_sweep_share_a_group_of_its_name(cli, server):
    quick = [*BARE, "trainer.max_steps=2", "global_batch_size=128"]
    done = cli("train", "-m", *quick, "seed=0,1", "sweep=pair", "logger=wandb")
    assert done.status == 0, done.err
    assert len(server.runs) == 2
    assert {run.first["groupName"] for run in server.runs.values()} == {"pair"}
    assert sorted(run.config["seed"]["value"] for run in server.runs.values()) == [0, 1]


@pytest.mark.slow
def test_a_run_of_wandbs_agent_that_is_preempted_goes_on_with_the_same_arguments(server, tmp_path, monkeypatch):
    """With experiments/wandb_sweep.yaml, by `wandb sweep` and `wandb agent`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    asked = yaml.safe_load((EXPERIMENTS / "wandb_sweep.yaml").read_text())
    asked["program"] = str(SRC / "train.py")
    asked["command"][4:4] = [word for word in [*TINY[1:], *BARE, *STEPS] if word != "logger=none"]
    Path("sweep.yaml").write_text(yaml.safe_dump(asked))
    values = {"model": "vit_mu4", "trainer.max_epochs": 6, "optimizer.weight_decay": 0.05, "callbacks": "[default,ema]"}
    server.choices += [values | {"optimizer.lr": 0.0012}, values | {"optimizer.lr": 0.0012, "trainer.max_epochs": 1}]
    made = subprocess.run(["wandb", "sweep", "sweep.yaml"], capture_output=True, text=True, check=True)
    assert "wandb agent tester/vitlab/sweep0" in made.stderr
    with subprocess.Popen(["wandb", "agent", "tester/vitlab/sweep0"], start_new_session=True) as agent:
        try:
            folder = wait_for_step("runs/digits/sweep0run0/*", 15, agent)
            os.kill(read_holder(folder)["pid"], signal.SIGUSR1)
            assert agent.wait(240) == 0
        finally:
            os.killpg(agent.pid, signal.SIGKILL) if agent.poll() is None else None
    first, again, *_ = commands = server.commands
    assert [command["type"] for command in commands] == ["run", "resume", "run", "exit"]
    assert (again["run_id"], again["args"]) == (first["run_id"], first["args"])
    run = server.runs[first["run_id"]]
    assert (run.first["sweep"], run.starts, run.exit_code) == ("sweep0", 2, 0)
    assert list(Path("runs/digits").glob("sweep0run0/*")) == [folder]
    assert [step for step, _ in run.read_metric("train/loss")] == list(range(1, 115))
    assert holds_all_of(run, folder)
    assert asked["metric"]["name"] in run.summary
    assert run.config["model"]["value"] == "vit_mu4"
    assert (run.config["model.depth"]["value"], run.config["optimizer.lr"]["value"]) == (2, 0.0012)
    assert server.runs["sweep0run1"].exit_code == 0
