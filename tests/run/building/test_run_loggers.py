"""The loggers of a run: metrics.csv always, others with what they ask for, and each is told how the run ends."""

from types import SimpleNamespace

import pytest
from pytorch_lightning.loggers import CSVLogger

from vitlab.callbacks.interruption import Interrupted
from vitlab.config.job import Job
from vitlab.config.nodes import make_node
from vitlab.config.redaction import MARK, Redaction
from vitlab.errors import ConfigError
from vitlab.loggers import MetricsCSV, RunLogger
from vitlab.run.building import run_loggers
from vitlab.run.building.run_loggers import build_loggers, close_loggers, try_callbacks_and_loggers, uploads
from vitlab.run.storage.start import Start

ASKED = ("folder", "name", "group", "run_id", "first_step", "run_config", "arguments")


class Asking(RunLogger):
    """Takes everything that a logger can be given, and keeps it."""

    name = version = "asking"

    def __init__(self, *, folder, name, group, run_id, first_step, run_config, arguments, own: int):
        self.given = dict(zip(ASKED, (folder, name, group, run_id, first_step, run_config, arguments), strict=True))
        self.own = own
        self.ended = []

    def close(self, exit_code):
        self.ended.append(exit_code)

    def upload_command(self):
        return "send it" if self.own else None

    def log_metrics(self, metrics, step=None): ...

    def log_hyperparams(self, params): ...


class Content(Asking):
    """Asks for nothing."""

    def __init__(self, *, own: int = 0):
        self.own = own
        self.ended = []


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    monkeypatch.setattr("vitlab.config.build.TRUSTED", [__name__])


def start_in(folder, logger, callbacks=None):
    cfg = make_node({"name": "mine", "api_key": "a secret word", "logger": logger, "callbacks": callbacks or {}})
    job = Job("train", folder, False, ["seed=1", "api_key=a secret word"], {})
    identity = SimpleNamespace(id="0wn")
    return Start(cfg, job, folder, Redaction(cfg), identity, {}, None, {}, first_step=7, mark=None)


def test_metrics_are_always_kept_and_a_logger_is_given_what_it_asks_for(tmp_path):
    nodes = {"one": {"_target_": f"{__name__}.Asking", "own": 1}, "other": {"_target_": f"{__name__}.Content"}}
    metrics, asking, content = build_loggers(start_in(tmp_path / "run", nodes))
    assert isinstance(metrics, MetricsCSV)
    assert isinstance(content, Content)
    config = asking.given.pop("run_config")
    assert config["api_key"] == MARK
    assert config["name"] == "mine"
    assert asking.given == {
        "folder": str(tmp_path / "run"),
        "name": "mine/run",
        "group": None,
        "run_id": "0wn",
        "first_step": 7,
        "arguments": ["seed=1", f"api_key={MARK}"],
    }


@pytest.mark.parametrize("sweep", ["sizes", "model-a,b/sweep_2026-11-24"])
def test_jobs_of_a_sweep_are_one_group_with_its_name(tmp_path, sweep):
    job = tmp_path / "runs" / sweep / "jobs" / "seed-1" / "job.json"
    job.parent.mkdir(parents=True)
    job.touch()
    node = {"_target_": f"{__name__}.Asking", "own": 1}
    _, asking = build_loggers(start_in(tmp_path / "runs" / sweep / "seed-1", {"one": node}))
    assert asking.given["group"] == sweep


def test_what_cannot_be_built_is_named_before_the_data_is_opened(tmp_path):
    node = {"_target_": f"{__name__}.Asking", "own": "one"}
    with pytest.raises(ConfigError, match=r"logger\.wrong\.own"):
        try_callbacks_and_loggers(start_in(tmp_path, {"wrong": node}))
    with pytest.raises(ConfigError, match=r"callbacks\.wrong"):
        try_callbacks_and_loggers(start_in(tmp_path, {}, {"wrong": {"_target_": "vitlab.callbacks.EMA"}}))


def trainer_of(*loggers):
    return SimpleNamespace(loggers=list(loggers))


def test_loggers_are_told_how_the_run_ended_once_no_other_process_is_waited_for(tmp_path, monkeypatch):
    ours, other = Content(), CSVLogger(tmp_path)  # Lightning's has no `close`
    monkeypatch.setattr(run_loggers, "stop_waiting_for_others", lambda trainer: ours.ended.append("alone"))
    with close_loggers(trainer_of(other, ours)):
        assert ours.ended == []
    with pytest.raises(KeyboardInterrupt), close_loggers(trainer_of(other, ours)):
        raise KeyboardInterrupt
    with pytest.raises(Interrupted), close_loggers(trainer_of(other, ours)):
        raise Interrupted(138)  # by SIGUSR1
    with pytest.raises(SystemExit), close_loggers(trainer_of(other, ours)):
        raise SystemExit("code of a user's own says why")
    assert ours.ended == ["alone", 0, "alone", 1, "alone", 138, "alone", 1]


def test_commands_that_send_are_given_as_one(tmp_path):
    assert uploads([CSVLogger(tmp_path), Content(own=0)]) == {}
    assert uploads([Content(own=1), Content(own=0), Content(own=1)]) == {"upload": "send it && send it"}
