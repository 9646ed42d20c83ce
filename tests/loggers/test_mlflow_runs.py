"""What MLflow keeps of a run is what metrics.csv says, in one run of its own over all starts."""

import csv
import warnings

import pytest
from conftest import BARE, FEW

from vitlab.loggers import MLflow, mlflow_runs

SETTINGS = {"experiment": "e", "tracking_uri": None, "tags": {"a": 1}, "name": "n", "group": "g", "run_id": "abc"}


def library():
    return pytest.importorskip("mlflow", reason="logger=mlflow needs the extra: pip install 'vitlab[mlflow]'")


def client(folder):
    return library().MlflowClient(f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}")


def only_run(folder):
    found = client(folder)
    (run,) = found.search_runs([found.get_experiment_by_name("vitlab").experiment_id])
    return run


@pytest.mark.slow
def test_a_run_and_its_resume_are_one_run_of_mlflow(cli, tmp_path):
    library()
    few = [BARE[0], BARE[2], *FEW, "trainer.log_every_n_steps=1", "trainer.max_epochs=1"]
    run = cli("train", *few, "logger=mlflow", folder="logged", pictures=True)
    assert run.status == 0, run.err
    resumed = cli("train", "resume=logged", "trainer.max_epochs=2", tiny=False)
    assert resumed.status == 0, resumed.err
    kept = only_run(run.folder)
    assert kept.info.status == "FINISHED"
    assert kept.info.run_name.endswith("/logged")
    assert kept.data.params["model/embed_dim"] == "32"
    found = client(run.folder)
    with open(run.folder / "metrics.csv", newline="") as file:
        rows = [(int(row["step"]), float(row["train/loss"])) for row in csv.DictReader(file) if row["train/loss"]]
    history = found.get_metric_history(kept.info.run_id, "train/loss")
    assert [(one.step, pytest.approx(one.value)) for one in history] == rows
    assert [file.path for file in found.list_artifacts(kept.info.run_id, "pictures")] == ["pictures/training_batch.png"]
    assert {path.name for path in tmp_path.iterdir()} == {"logged"}  # nothing beside the run


def test_a_server_that_does_not_answer_costs_one_warning(tmp_path, monkeypatch):
    library()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    logger = MLflow(folder=str(tmp_path), run_config={}, **SETTINGS | {"tracking_uri": "http://127.0.0.1:9"})
    with pytest.warns(UserWarning, match="MLflow no longer accepts records"):
        logger.log_metrics({"loss": 1.0}, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.log_metrics({"loss": 1.0}, 2)
        logger.close(0)


def test_without_the_package_one_sentence_names_the_extra(cli, monkeypatch):
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda package: None)
    run = cli("train", "logger=mlflow", folder="run")
    assert run.status == 2
    assert "pip install 'vitlab[mlflow]'" in run.err
