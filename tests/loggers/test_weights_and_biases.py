"""W&B never asks, blocks or ends a run: what does not work online is logged offline, into the run's folder."""

import builtins
import getpass
import json
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import wandb
from wandb_server import serve

from vitlab.loggers import WeightsAndBiases, weights_and_biases

HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
WRONG_KEY = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def stranger(tmp_path, monkeypatch):
    """A user without account and credentials, in an empty home and folder, who cannot be asked anything."""
    for key in [key for key in os.environ if key.startswith("WANDB_")]:
        monkeypatch.delenv(key)
    for key in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(key, "set by the logger, and taken back after the test")
    for folder in ("home", "here"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    for module, function in ((builtins, "input"), (getpass, "getpass")):
        monkeypatch.setattr(module, function, lambda *a, **k: pytest.fail("it asks"))
    wandb.teardown()  # the service keeps the environment that it was started in
    yield
    wandb.teardown()


@pytest.fixture
def logger(tmp_path):
    def make(folder="run", **changes):
        settings = {"project": "p", "entity": None, "tags": ["t"], "name": "n", "group": None, "run_id": f"id{folder}"}
        settings |= {"artifacts": False, "upload_minutes": 10, "first_step": 0}
        told = {"run_config": {"lr": 0.5}, "arguments": ["optimizer.lr=0.5"]}
        return WeightsAndBiases(folder=str(tmp_path / folder), **settings | told | changes)

    return make


@pytest.fixture
def server(monkeypatch):
    """A W&B server that takes connections and says one and the same thing, or nothing at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def answer(connection, reply):
        with connection:
            connection.recv(65536)
            connection.sendall(reply)

    def serve(reply):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            connections.append(connection)
            if reply is not None:
                threading.Thread(target=answer, args=(connection, reply), daemon=True).start()

    def start(reply):
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")  # W&B's telemetry, which tries for seconds at exit
        threading.Thread(target=serve, args=(reply,), daemon=True).start()

    yield start
    listener.close()
    for connection in connections:
        connection.close()


@pytest.fixture
def wandb_server(monkeypatch):
    """A stand-in for W&B's server that takes runs."""
    with serve() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        yield server
        assert server.unknown == []
        wandb.teardown()


def recorded(folder):
    """What the one offline run in a folder holds, read back by W&B's own reader."""
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(file)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def goes_offline(logger, words):
    """Starting, logging and closing work, with one warning that holds the words; gives the seconds it took."""
    started = time.monotonic()
    with pytest.warns(UserWarning, match=words) as caught:
        logger.log_metrics({"val/loss": 1.0}, step=1)
    seconds = time.monotonic() - started
    assert len([w for w in caught if "W&B" in str(w.message) or "offline" in str(w.message)]) == 1
    assert logger.experiment.offline
    logger.close(0)
    return seconds


@pytest.mark.ci
@pytest.mark.slow
def test_without_credentials_it_logs_offline_into_the_folder_and_asks_nothing(logger, tmp_path):
    run = logger(group="sweep")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.log_metrics({"val/loss": 0.25}, step=3)
    assert run.experiment.offline
    run.close(0)
    record = recorded(tmp_path / "run")
    assert (record["project"], record["name"], record["tags"], record["run_id"]) == ("p", "n", ["t"], "idrun")
    assert (record["config"]["lr"], record["exit_code"], record["state"]) == (0.5, 0, "finished")
    assert (record["summary"]["val/loss"], record["summary"]["trainer/global_step"]) == (0.25, 3)
    assert not [path for folder in ("home", "here") for path in (tmp_path / folder).rglob("*wandb*")]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"wandb"}


def test_nothing_is_started_before_it_is_needed(logger, tmp_path):
    logger().close(0)
    assert not (tmp_path / "run").exists()


@pytest.mark.ci
@pytest.mark.slow
def test_a_second_logger_starts_its_own_run(logger, tmp_path):
    for job in ("a", "b"):
        run = logger(job)
        run.log_metrics({job: 1.0}, step=0)
        run.close(0)
    for job, other in (("a", "b"), ("b", "a")):
        record = recorded(tmp_path / job)
        assert record["run_id"] == f"id{job}"
        assert job in record["summary"]
        assert other not in record["summary"]


def test_a_mode_that_the_user_gives_wins(logger, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run = logger()
    run.log_metrics({"val/loss": 1.0}, step=1)
    run.close(0)
    assert not list((tmp_path / "run").glob("wandb/*run-*"))


@pytest.mark.parametrize(("host", "known"), [("api.wandb.ai", True), ("elsewhere", False)])
def test_credentials_may_lie_in_netrc(tmp_path, host, known):
    assert not weights_and_biases.has_credentials()
    (tmp_path / "home" / ".netrc").write_text(f"machine {host} login user password {'0' * 40}\n")
    (tmp_path / "home" / ".netrc").chmod(0o600)
    assert weights_and_biases.has_credentials() == known


def test_a_log_call_that_raises_warns_once_and_training_goes_on(logger):
    calls = []

    def broken(*arguments, **options):
        calls.append(arguments)
        raise ConnectionResetError("Connection lost")

    run = logger()
    run._experiment = SimpleNamespace(log=broken)
    with pytest.warns(UserWarning, match=r"no longer accepts records \(Connection lost\); metrics\.csv continues"):
        run.log_metrics({"a": 1.0}, step=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.log_metrics({"a": 2.0}, step=2)
        run.log_image("picture", [])
        run.log_table("table", columns=["a"], data=[[1]])
    assert len(calls) == 1


def test_a_dead_wandb_process_does_not_end_the_run_when_it_is_closed(logger):
    def broken(*arguments, **options):
        raise ConnectionResetError("Connection lost")

    run = logger()
    run._experiment = SimpleNamespace(finish=broken, settings=SimpleNamespace(sync_dir="wandb/a run"))
    with pytest.warns(UserWarning, match=r"\(Connection lost\); .* and wandb sync 'wandb/a run' sends the rest"):
        run.close(0)
    run.close(0)


@pytest.mark.slow
def test_a_server_that_never_answers_is_waited_for_only_so_long(logger, server, monkeypatch):
    monkeypatch.setattr(weights_and_biases, "ANSWER_SECONDS", 2)
    server(None)
    assert 2 <= goes_offline(logger(), "does not answer .*logged offline") < 8


@pytest.mark.slow
def test_a_server_that_refuses_the_connection_is_not_waited_for(logger, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    goes_offline(logger(), "does not answer .*logged offline")


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply",
    [HTML, WRONG_KEY, BROKEN, b"hello there\r\n", b""],
    ids=["html", "wrong key", "broken", "no HTTP", "nothing"],
)
def test_a_server_that_answers_but_takes_no_run_is_left_alone(logger, server, monkeypatch, reply):
    monkeypatch.setattr(weights_and_biases, "ANSWER_SECONDS", 2)
    server(reply)
    assert goes_offline(logger(), "logged offline") < 8


# -- with a server that takes runs


def log_steps(run, steps, exit_code=0):
    """Log a loss at every step, and close the run."""
    for step in steps:
        run.log_metrics({"loss": step / 10}, step=step)
    run.close(exit_code)


def write_rows(folder, steps):
    """Write metrics.csv as a run has that logged a loss at every step."""
    folder.mkdir(exist_ok=True)
    rows = [f"{step},{step / 10}\n" for step in steps]
    (folder / "metrics.csv").write_text("".join(["step,loss\n", *rows]))


def losses(steps):
    return [(step, step / 10) for step in steps]


@pytest.mark.ci
@pytest.mark.slow
def test_an_online_run_arrives_with_its_names_config_and_metrics(logger, wandb_server):
    log_steps(logger(group="sweep"), range(1, 4), exit_code=3)
    (run,) = wandb_server.runs.values()
    assert run.read_metric("loss") == losses(range(1, 4))
    assert (run.config["lr"]["value"], run.exit_code, run.starts) == (0.5, 3, 1)
    assert [run.first[key] for key in ("groupName", "displayName", "tags")] == ["sweep", "n", ["t"]]


@pytest.mark.ci
@pytest.mark.slow
def test_a_resumed_run_sends_no_step_again(logger, wandb_server, tmp_path, capsys):
    """The state is older than what was logged before the kill."""
    first = logger()
    log_steps(first, range(1, 6))
    write_rows(tmp_path / "run", range(1, 6))
    resumed = logger(first_step=3)
    resumed.log_metrics({"loss": 0.4}, step=4)
    resumed.log_metrics({"loss": 0.5, "val/loss": 9.0}, step=5)  # killed before its validation
    log_steps(resumed, range(6, 9))
    (run,) = wandb_server.runs.values()
    assert run.starts == 2
    assert run.read_metric("loss") == losses(range(1, 9))
    assert run.read_metric("val/loss") == [(5, 9.0)]
    assert "W&B already has steps 4 to 5 of this run, and keeps them as they are" in capsys.readouterr().out


@pytest.mark.ci
@pytest.mark.slow
def test_a_resumed_run_sends_what_a_kill_has_lost(logger, wandb_server, tmp_path):
    """W&B uploads every 15 seconds; rows that came after the state belong to no resumed run."""
    log_steps(logger(), range(1, 3))
    write_rows(tmp_path / "run", range(1, 8))
    log_steps(logger(first_step=5), range(6, 8))
    (run,) = wandb_server.runs.values()
    assert run.read_metric("loss") == losses(range(1, 8))


def sync(run):
    """Send an offline run by the command that it prints."""
    command = [sys.executable, "-m", *run.upload_command().split()]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"WANDB_MODE": "online"})


@pytest.mark.slow
@pytest.mark.parametrize("synced_before", [False, True])
def test_offline_starts_become_one_history(logger, wandb_server, tmp_path, monkeypatch, synced_before):
    """The file of a killed offline run may hold nothing: the next one begins with the rows of metrics.csv."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    first = logger()
    log_steps(first, range(1, 4))
    if synced_before:
        sync(first)
    write_rows(tmp_path / "run", range(1, 4))
    second = logger(first_step=3)
    log_steps(second, range(4, 7))
    sync(second)
    (run,) = wandb_server.runs.values()
    assert run.read_metric("loss") == losses(range(1, 7))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_the_best_model_and_the_predictions_of_a_finished_run_are_artifacts(
    logger, wandb_server, tmp_path, monkeypatch, mode
):
    monkeypatch.setenv("WANDB_MODE", mode)
    files = {"model": "checkpoints/best.ckpt", "predictions": "test_predictions.csv"}
    for kind, name in files.items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(kind)
    log_steps(logger(artifacts=True), range(2), exit_code=1)  # a failed start uploads none
    run = logger(artifacts=True)
    log_steps(run, range(2, 4))
    if mode == "offline":
        for kind, name in files.items():
            (tmp_path / "run" / name).write_text(f"{kind} of a longer run")
        sync(run)
    found = {one.name: one.files for one in wandb_server.artifacts if one.committed}
    assert found == {f"{kind}-idrun": {Path(name).name: kind.encode()} for kind, name in files.items()}
    assert len(wandb_server.artifacts) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("status", "preempting"), [(128 + 10, True), (128 + 15, False), (1, False)])
def test_a_run_that_a_scheduler_stops_is_marked_as_preempted(logger, wandb_server, status, preempting):
    """W&B's own agent stops runs by SIGTERM, such as those that a sweep ends early."""
    log_steps(logger(), range(2), exit_code=status)
    (run,) = wandb_server.runs.values()
    assert (run.preempting, run.exit_code) == (preempting, status)


def test_a_sweep_of_wandbs_keeps_the_names_of_options(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    path.write_text("wandb_version: 1\nmodel: {value: vit_mu4}\noptimizer.lr: {value: 0.1}\nseed: {value: 1}\n")
    config = {"model": {"depth": 2, "head": {"bias": 0}}, "optimizer": {"lr": 0.1}, "seed": 1}
    assert weights_and_biases.rename_swept_groups(config) == config
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(path))
    renamed = {"model.depth": 2, "model.head": {"bias": 0}, "optimizer": {"lr": 0.1}, "seed": 1}
    assert weights_and_biases.rename_swept_groups(config) == renamed
