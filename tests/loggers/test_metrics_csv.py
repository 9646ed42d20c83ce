"""metrics.csv holds one row for each step, and survives kills, resumes, new names and damage."""

import copy
import csv

import pytest
import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel

from vitlab.errors import CheckpointError
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


def test_a_value_of_an_earlier_step_joins_its_row(log):
    rows = log([(10, {"a": 1.0}), (20, {"a": 2.0}), (10, {"b": 3.0}), (15, {"b": 4.0}), (20, {"b": 5.0})])
    assert [list(row.values()) for row in rows] == [[10, 1, 3], [15, 4], [20, 2, 5]]


class Stopwatch(pl.Callback):
    """Log as a user's callback does: Lightning then calls the loggers, at times of its own."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        pl_module.log("mine/batch", 1.0)

    def on_train_epoch_end(self, trainer, pl_module):
        pl_module.log("mine/epoch", 2.0)

    def on_validation_epoch_end(self, trainer, pl_module):
        pl_module.log("mine/val", 3.0)


class OwnRows(pl.Callback):
    """Log every fifth step, and keep what a state would hold of the rows."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step % 5 == 0:
            trainer.logger.log_metrics({"train/loss": 1.0, "epoch": trainer.global_step / 5}, trainer.global_step)
        self.state = copy.deepcopy(trainer.logger.state_dict())


def test_what_a_callback_logs_belongs_to_the_step_that_is_done(tmp_path, recwarn, capsys):
    logger, own = MetricsCSV(folder=str(tmp_path), first_step=0), OwnRows()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        limit_train_batches=5,
        limit_val_batches=1,
        num_sanity_val_steps=0,
        log_every_n_steps=5,
        logger=logger,
        callbacks=[logger, own, Stopwatch()],
        default_root_dir=tmp_path,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(BoringModel())
    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    mine = {"mine/batch": 1, "mine/epoch": 2, "mine/val": 3}
    assert rows == [{"step": step, "train/loss": 1, "epoch": step / 5, **mine} for step in (5, 10)]
    resumed = MetricsCSV(folder=str(tmp_path), first_step=10)
    resumed.load_state_dict(own.state)
    resumed.log_metrics({"train/loss": 0.5}, 15)
    assert "was changed" not in capsys.readouterr().out
    assert not (tmp_path / "metrics.damaged.csv").exists()


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


NUM_ROWS = 8
NAN = float("nan")  # the loss of the last row


@pytest.fixture
def ended(tmp_path):
    """A run of eight rows whose state was saved at step 8, after which it was tested; gives what the state knows."""
    logger = MetricsCSV(folder=str(tmp_path), first_step=0)
    for step in range(1, NUM_ROWS + 1):
        logger.log_metrics({"loss": NAN if step == NUM_ROWS else 1 / step, "lr": 0.1}, step)
    known = copy.deepcopy(logger.state_dict())
    logger.log_metrics({"test/loss": 0.5}, NUM_ROWS)
    return known


@pytest.fixture
def resumed(tmp_path, capsys):
    """resumed(known): go on from step 8; gives the rows of the file, the sentence and the files."""

    def resume(known, first_step=NUM_ROWS):
        logger = MetricsCSV(folder=str(tmp_path), first_step=first_step)
        logger.load_state_dict(known)
        logger.log_metrics({"loss": 9.0}, first_step + 1)
        with open(tmp_path / "metrics.csv", newline="") as file:
            rows = {int(row["step"]): row for row in csv.DictReader(file)}
        return rows, capsys.readouterr().out, sorted(path.name for path in tmp_path.iterdir())

    return resume


def edited(change):
    def edit(path):
        lines = path.read_text().splitlines()
        change(lines)
        path.write_text("".join(f"{line}\n" for line in lines))

    return edit


def rewritten(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def with_column(name, value):
    def change(lines):
        lines[:] = [f"{line},{value if number else name}" for number, line in enumerate(lines)]

    return edited(change)


def replaced(number, old, new):
    return edited(lambda lines: lines.__setitem__(number, lines[number].replace(old, new, 1)))


ALL = set(range(1, NUM_ROWS + 1))
HARMLESS = {
    "nothing": lambda path: None,
    "a line that is half written": rewritten(lambda content: content + b"9,0.1"),
    "later rows": rewritten(lambda content: content + b"9,0.1,0.1,\r\n10,0.1,0.1,\r\n"),
    "other line ends": edited(lambda lines: None),
    "rows in another order": edited(lambda lines: lines.__setitem__(slice(1, 9), lines[8:0:-1])),
    "a mark of UTF-8": rewritten(lambda content: b"\xef\xbb\xbf" + content),
    "a disk's zeros": rewritten(lambda content: content + bytes(512)),
}
DAMAGES = {  # and the rows that are left; the last one is in the state itself
    "cut in the last line": (rewritten(lambda content: content[:-4]), ALL),
    "cut in mid-file": (rewritten(lambda content: content[: content.index(b"\n4,") + 5]), {1, 2, 3, 8}),
    "lines removed": (edited(lambda lines: lines.__delitem__(slice(3, 5))), ALL - {3, 4}),
    "a number changed": (replaced(2, "0.5", "0.51"), ALL - {2}),
    "a number of the last row changed": (replaced(8, "0.1", "0.2"), ALL),
    "a number that is none": (replaced(2, "0.5", "half"), ALL - {2}),
    "a row twice": (edited(lambda lines: lines.insert(3, lines[3])), ALL),
    "a row of nobody": (edited(lambda lines: lines.insert(1, "0,0.1,0.1,")), ALL),
    "a row without a step": (edited(lambda lines: lines.insert(3, "x,0.1,0.1,")), ALL),
    "a quote without an end": (replaced(3, "3,", '3,"'), {1, 2, 8}),
    "a field without an end": (replaced(3, "3,", '3,"' + "9" * 200_000), {1, 2, 8}),
    "another name": (replaced(0, "loss", "cost"), {8}),
    "a column of text": (with_column("note", "good"), {8}),
    "a column of numbers": (with_column("mine", "1.5"), {8}),
    "no line but the first": (edited(lambda lines: lines.__delitem__(slice(1, 9))), {8}),
    "empty": (rewritten(lambda content: b""), {8}),
    "of another kind": (rewritten(lambda content: bytes(range(256)) * 9), {8}),
    "of another run": (edited(lambda lines: lines.__setitem__(slice(1, 9), [f"{i},0.3,0.1," for i in ALL])), {8}),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_rows_that_a_state_knows_go_on_without_a_word(ended, resumed, tmp_path, change):
    HARMLESS[change](tmp_path / "metrics.csv")
    rows, told, files = resumed(ended)
    assert rows.keys() == ALL | {9}
    assert [rows[step]["loss"] for step in (2, 8, 9)] == ["0.5", "nan", "9.0"]
    assert rows[8]["test/loss"] == "0.5"  # logged after the state was saved
    assert (told, files) == ("", ["metrics.csv"])


@pytest.mark.parametrize("damage", DAMAGES)
def test_rows_that_a_state_does_not_know_are_told_and_set_aside(ended, resumed, tmp_path, damage):
    change, left = DAMAGES[damage]
    change(tmp_path / "metrics.csv")
    found = (tmp_path / "metrics.csv").read_bytes()
    rows, told, files = resumed(ended)
    assert rows.keys() == left | {9}
    for step in left:
        assert (rows[step]["loss"], rows[step]["lr"]) == (str(NAN if step == 8 else 1 / step), "0.1")
    assert told.count("\n") == 1
    assert "metrics.csv was changed after the run saved step 8" in told
    assert f"{len(left)} are kept, and the old file is now metrics.damaged.csv" in told
    assert files == ["metrics.csv", "metrics.damaged.csv"]
    assert (tmp_path / "metrics.damaged.csv").read_bytes() == found


def test_rows_that_are_gone_are_told(ended, resumed, tmp_path):
    (tmp_path / "metrics.csv").unlink()
    rows, told, files = resumed(ended)
    assert rows.keys() == {8, 9}
    assert "8 of 8 rows are missing or changed, and 0 belong to another run; 1 are kept\n" in told
    assert files == ["metrics.csv"]


def test_a_second_damage_leaves_what_the_first_one_set_aside(ended, resumed, tmp_path):
    for _ in range(2):
        (tmp_path / "metrics.csv").write_text("damaged")
        _, _, files = resumed(ended)
    assert files == ["metrics.csv", "metrics.damaged-2.csv", "metrics.damaged.csv"]


def test_a_row_of_the_states_step_that_came_after_it_stays(log, resumed, tmp_path):
    """The last rows of a run that logs every third step, and is tested at step 8."""
    logger = MetricsCSV(folder=str(tmp_path), first_step=0)
    for step in (3, 6):
        logger.log_metrics({"loss": 1 / step}, step)
    known = copy.deepcopy(logger.state_dict())
    logger.log_metrics({"test/loss": 0.5}, 8)
    rows, told, _ = resumed(known)
    assert rows.keys() == {3, 6, 8, 9}
    assert told == ""


@pytest.mark.parametrize("known", [{"rows": 5, "last": {}}, {"rows": "", "last": 5}, {"rows": "", "last": {"a": 1.0}}])
def test_what_a_state_knows_may_be_damaged(tmp_path, known):
    with pytest.raises(CheckpointError, match=r"the checkpoint is damaged: callbacks\.MetricsCSV"):
        MetricsCSV(folder=str(tmp_path), first_step=8).load_state_dict(known)
