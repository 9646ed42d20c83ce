"""metrics.csv holds one row for each step, and survives kills, resumes and new names."""

import csv

import pytest

from vitlab.loggers import MetricsCSV


@pytest.fixture
def log(tmp_path):
    """Log {step: metrics} as one start of a run, from a step on; gives the rows that are then in the file."""

    def start(metrics, first_step=0):
        logger = MetricsCSV(folder=str(tmp_path), first_step=first_step)
        for step, values in metrics:
            logger.log_metrics(values, step)
        with open(tmp_path / "metrics.csv", newline="") as file:
            return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]

    return start


def test_nothing_is_written_before_something_is_logged(tmp_path):
    MetricsCSV(folder=str(tmp_path), first_step=0)
    assert not list(tmp_path.iterdir())


def test_values_of_one_step_share_a_row_and_columns_grow(log, tmp_path):
    rows = log(
        [
            (1, {"train/loss": 2.5}),
            (2, {"train/loss": 2.0}),
            (2, {"val/loss": 3.0, "val/acc1": 0.5}),
            (3, {"train/loss": 1}),
        ]
    )
    assert rows == [
        {"step": 1, "train/loss": 2.5},
        {"step": 2, "train/loss": 2.0, "val/loss": 3.0, "val/acc1": 0.5},
        {"step": 3, "train/loss": 1.0},
    ]
    assert (tmp_path / "metrics.csv").read_text().splitlines()[0] == "step,train/loss,val/loss,val/acc1"
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_every_row_is_on_the_disk_once_it_is_logged(log, tmp_path):
    logger = MetricsCSV(folder=str(tmp_path), first_step=0)
    for step in range(1, 5):
        logger.log_metrics({"loss": step}, step)
        assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 1 + step


def test_numbers_come_back_as_they_were(log):
    values = {"third": 1 / 3, "small": 1e-300, "nan": float("nan"), "inf": float("inf")}
    row = log([(1, values)])[0]
    assert (row["third"], row["small"], row["inf"]) == (1 / 3, 1e-300, float("inf"))
    assert row["nan"] != row["nan"]


def test_a_resume_drops_later_rows_and_keeps_each_step_once(log):
    log([(step, {"loss": float(step)}) for step in (10, 20, 30, 40)])
    rows = log([(25, {"loss": 0.25}), (35, {"loss": 0.35})], first_step=20)
    assert [(row["step"], row["loss"]) for row in rows] == [(10, 10), (20, 20), (25, 0.25), (35, 0.35)]


def test_a_resume_with_other_names_keeps_earlier_values(log):
    log([(10, {"a": 1.0, "b": 2.0}), (20, {"c": 3.0})])
    rows = log([(15, {"b": 5.0, "d": 4.0})], first_step=10)
    assert rows == [{"step": 10, "a": 1.0, "b": 2.0}, {"step": 15, "b": 5.0, "d": 4.0}]


def test_a_resume_adds_to_the_row_of_the_step_it_resumes_from(log):
    log([(10, {"a": 1.0}), (20, {"a": 2.0})])
    assert log([(10, {"b": 3.0})], first_step=10) == [{"step": 10, "a": 1.0, "b": 3.0}]


def test_a_fresh_run_in_an_old_folder_starts_over(log):
    log([(10, {"a": 1.0})])
    assert log([(5, {"a": 2.0})], first_step=0) == [{"step": 5, "a": 2.0}]


@pytest.mark.parametrize("half", ["3", "1", "30,", "30,2.", "1,"])
def test_a_last_line_that_is_half_written_is_dropped(log, tmp_path, half):
    """A kill may cut a line anywhere: 15,2.5 may look like step 1."""
    log([(10, {"loss": 1.0}), (20, {"loss": 2.0})])
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write(half)
    rows = log([(25, {"loss": 3.0})], first_step=20)
    assert [(row["step"], row.get("loss")) for row in rows] == [(10, 1.0), (20, 2.0), (25, 3.0)]
