"""What a run prints at its start and its end."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from vitlab.data.targets import OneClass, SeveralClasses
from vitlab.run.printing.console import MOST_LETTERS, classes, format_found, print_result, write_json


def data_of(targets, counts, shares=None, balance=0.0):
    return SimpleNamespace(
        targets=targets,
        num_classes=len(counts),
        class_counts=lambda: np.array(counts),
        class_shares=lambda: np.array(shares or counts),
        order=SimpleNamespace(class_balance=balance),
    )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (data_of(OneClass([0]), [5, 5]), "2, of 5 training images each"),
        (data_of(OneClass([0]), [5, 1200, 7]), "3, of 5 to 1,200 training images each"),
        (
            data_of(OneClass([0]), [5, 9], [7, 8], balance=0.5),
            "2, of 5 to 9 training images each, balanced: 7 to 8 an epoch",
        ),
        (data_of(SeveralClasses(np.eye(2, dtype=np.uint8)), [5, 9]), "2, of 5 to 9 training images each, several an"),
    ],
)
def test_a_start_says_how_many_images_a_class_has(data, told):
    assert classes(data).startswith(told)


def test_a_start_says_how_classes_are_told():
    some = {"things": "images", "class_names": ["zero", "one"], "targets": SimpleNamespace(kind="with a caption each")}
    assert classes(SimpleNamespace(**some)) == "2, told by their names: images with a caption each"
    assert classes(SimpleNamespace(**some | {"class_names": []})) == "none: images with a caption each"


def test_what_was_found_can_be_typed_unless_it_is_long():
    found = {"in_chans": 1, "mean": [0.5, 0.25], "characters": "a b", "precision": "32-true"}
    typed = "data.in_chans=1 'data.mean=[0.5,0.25]' 'data.source.characters=a b' trainer.precision=32-true"
    assert format_found(found) == typed
    assert format_found(found, "as they are") == f"{typed}; as they are"
    assert format_found({"characters": "a" * MOST_LETTERS}) == f"data.source.characters={'a' * MOST_LETTERS}"
    assert format_found({"characters": "a" * (MOST_LETTERS + 1)}) == "data.source.characters=…"
    assert format_found({"characters": "a\u202eb"}) == "data.source.characters=…"


def test_a_result_has_its_metrics_first_and_then_what_to_do(capsys):
    metrics = {"test/acc1": 0.123, "test/loss": float("nan")}
    print_result(metrics, {"folder": "runs/[mine]"}, {"go on": "vitlab train resume=runs/[mine]"})
    *table, folder, command = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table if "test/" in line]
    assert rows == [["test/acc1", "12.30%"], ["test/loss", "–"]]
    assert folder == "folder     runs/[mine]"  # not taken for a style
    assert command == "go on      vitlab train resume=runs/[mine]"


def test_numbers_that_json_has_not_are_null(tmp_path):
    infinite = float("inf")
    content = {"a": float("nan"), "b": [1.0, (-infinite, 2)], "c": {"d": infinite, "e": "nan", "f": None, "g": True}}
    write_json(tmp_path / "new" / "result.json", content)
    assert json.loads((tmp_path / "new" / "result.json").read_text()) == {
        "a": None,
        "b": [1.0, [None, 2]],
        "c": {"d": None, "e": "nan", "f": None, "g": True},
    }
