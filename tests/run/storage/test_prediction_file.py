"""Predictions appear when all are there, a killed writer's lines are kept, and no other command's are mixed in."""

import csv
import json
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import parquet

from vitlab.atomic_files import write_csv
from vitlab.errors import ConfigError, DataError, StorageError
from vitlab.run.storage.output import Output
from vitlab.run.storage.prediction_file import FAILED, ROW, check_form, prediction_file

REQUEST = {"inputs": "a", "top_k": 1}
LINES = [(ROW, {"image": f"{k}.png", "class_1": "a, 'b'\n", "probability_1": 0.25}) for k in range(3)]
LINES.insert(1, (FAILED, {"image": "torn.png", "reason": "it is torn"}))


def written(path, lines=LINES, request=REQUEST, overwrite=False):
    with prediction_file(Output(path, None), request, overwrite=overwrite) as file:
        file.add(lines[file.done :])
        count, first = file.finish("image")
        assert first in (None, LINES[1][1])
        return count, file.done - count


def begun(output, count):
    """As an interrupted process leaves it."""
    with suppress(KeyboardInterrupt), prediction_file(output, REQUEST, overwrite=False) as file:
        file.add(LINES[:count])
        raise KeyboardInterrupt


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_and_failures_are_written_apart(tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    assert written(path) == (3, 1)
    if ending == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    elif ending == "parquet":
        rows = parquet.read_table(path).to_pylist()
    else:
        with open(path, newline="") as file:
            rows = [{**row, "probability_1": float(row["probability_1"])} for row in csv.DictReader(file)]
    assert rows == [row for kind, row in LINES if kind == ROW]
    assert (tmp_path / "out.failed.csv").read_text().splitlines() == ["image,reason", "torn.png,it is torn"]
    assert {file.name for file in tmp_path.iterdir()} == {f"out.{ending}", "out.failed.csv"}


@pytest.mark.parametrize("count", range(5))
def test_a_later_start_goes_on_where_a_killed_one_stopped(tmp_path, count):
    path, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    begun(Output(path, None), count)
    assert not path.exists()
    assert (tmp_path / "out.csv.partial").exists() == (count > 0)
    if count:
        with open(tmp_path / "out.csv.partial", "ab") as file:
            file.write(b'{"row": {"image": "cu')  # the line at which it was killed
    assert written(path) == written(whole) == (3, 1)
    assert path.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "out.csv.partial").exists()


def test_the_beginning_of_another_command_is_neither_used_nor_lost(tmp_path):
    path = tmp_path / "out.csv"
    begun(Output(path, None), 2)
    before = (tmp_path / "out.csv.partial").read_bytes()
    for other, told in (
        ({"top_k": 2}, "which differs in top_k="),
        ({"inputs": "b"}, "which differs in the files that are read"),
        ({"share": "1/2", "inputs": "b"}, "of another share=, and each share needs an output of its own"),
    ):
        with pytest.raises(ConfigError, match=rf"csv\.partial belongs to another, unfinished prediction, {told}; name"):
            written(path, request={**REQUEST, **other})
    assert (tmp_path / "out.csv.partial").read_bytes() == before
    assert written(path, request={**REQUEST, "top_k": 2}, overwrite=True) == (3, 1)


def test_a_line_of_a_csv_file_ends_with_a_line_feed(tmp_path):
    written(tmp_path / "out.csv", lines=[(ROW, {"image": "a\r.png", "class_1": "b"})])
    assert (tmp_path / "out.csv").read_bytes() == b'image,class_1\n"a\r.png",b\n'
    write_csv(tmp_path / "table.csv", ["a"], [["\r"]])
    assert (tmp_path / "table.csv").read_bytes() == b'a\n"\r"\n'


@pytest.mark.parametrize("name", ["out.xlsx", "out", "out.csv.gz"])
def test_an_ending_that_no_form_has_is_refused(name):
    check_form(Path("OUT.CSV"))
    with pytest.raises(ConfigError, match=f"output={name} ends in none of .csv, .jsonl, .parquet; name such a file"):
        check_form(Path(name))


def test_a_file_has_one_writer(tmp_path):
    with prediction_file(Output(tmp_path / "out.csv", None), REQUEST, overwrite=False) as file:
        file.add(LINES)
        with pytest.raises(StorageError, match="another command is writing"):
            written(tmp_path / "out.csv")
        file.finish("image")


def test_an_unnamed_output_goes_on_in_the_folder_of_the_killed_start(tmp_path):
    first, second = (Output(tmp_path / name / "predictions.csv", tmp_path / name) for name in ("1", "2"))
    begun(first, 2)
    with prediction_file(second, REQUEST, overwrite=False) as file:
        assert (file.done, file.path.parent.name) == (2, "1")
    with prediction_file(second, {"other": 1}, overwrite=False) as file:
        assert file.done == 0
        file.add(LINES)
        file.finish("image")
    assert (tmp_path / "2" / "predictions.csv").is_file()


def test_a_start_that_is_refused_leaves_nothing(tmp_path):
    output = Output(tmp_path / "1" / "predictions.csv", tmp_path / "1")
    with pytest.raises(DataError), prediction_file(output, REQUEST, overwrite=False):
        raise DataError("no images")
    assert not list(tmp_path.iterdir())


def test_failures_of_an_output_that_is_replaced_go(tmp_path):
    written(tmp_path / "out.csv")
    written(tmp_path / "out.csv", lines=[LINES[0]], request={"other": 1})
    assert not (tmp_path / "out.failed.csv").exists()
