"""Figures of each class are those of scikit-learn, and stand in a file and, of few classes, on the terminal."""

import csv

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from vitlab.callbacks.label_tables import ONE_CLASS, SEVERAL_CLASSES
from vitlab.callbacks.per_class import per_class, write_per_class_table


@pytest.mark.parametrize("several", [False, True])
def test_the_figures_are_those_of_scikit_learn(several):
    random, K = np.random.RandomState(0), 5  # of which the last is neither there nor said
    if several:
        true, said = random.rand(2, 40, K) < 0.3
        true[:, -1] = said[:, -1] = False
        answers = SEVERAL_CLASSES.answers(np.concatenate([true, np.where(said, 0.7, 0.2)], axis=1), K)
        oracle = (true, said)
    else:
        oracle = random.randint(0, K - 1, (2, 40))
        answers = ONE_CLASS.answers(np.stack([*oracle, random.rand(40)], axis=1), K)
    found = per_class(*answers)
    expected = precision_recall_fscore_support(*oracle, labels=range(K), zero_division=np.nan)
    for name, values in zip(("precision", "recall", "f1", "images"), expected, strict=True):
        np.testing.assert_allclose(found[name], values)
    assert np.isnan(found["recall"][-1])


def test_few_classes_are_told_and_many_are_not(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    true, said = np.eye(3, dtype=bool)[[0, 0, 1]], np.eye(3, dtype=bool)[[0, 1, 1]]
    names = ["cat", "Brachypelma_hamorii_mexican_redknee_tarantula_of_a_name_that_is_long", "nobody"]
    write_per_class_table(per_class(true, said), names, tmp_path / "test_per_class.csv")
    with open(tmp_path / "test_per_class.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"class": "cat", "images": "2", "precision": "1.0", "recall": "0.5", "f1": "0.666667"}
    assert rows[2] == {"class": "nobody", "images": "0", "precision": "", "recall": "", "f1": ""}
    told = capsys.readouterr().out
    assert "│ cat" in told
    cells = [[word.strip() for word in line.split("│")[2:-1]] for line in told.splitlines()]
    assert ["2", "100.00%", "50.00%", "66.67%"] in cells
    assert max(map(len, told.splitlines())) <= 80
    many = [f"class {k}" for k in range(21)]
    eye = np.eye(21, dtype=bool)
    write_per_class_table(per_class(eye, eye), many, tmp_path / "many.csv")
    assert capsys.readouterr().out == ""
