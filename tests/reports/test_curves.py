"""Curves are drawn from metrics.csv alone: the values that stand there, in percent where the metric is a share."""

from contextlib import nullcontext

from vitlab.reports import curves
from vitlab.reports.curves import draw_curves, read_curves

TABLE = """step,epoch,train/loss,train/lr,val/loss,val/acc1,test/acc1
20,1,2.0,0.1,,,
20,1,,,1.9,0.25,
40,2,1.0,0.1,0.9,0.75,0.5
"""


def test_the_values_of_the_table_are_drawn(tmp_path, monkeypatch):
    (tmp_path / "metrics.csv").write_text(TABLE)
    drawn = []
    monkeypatch.setattr(curves.Figure, "savefig", lambda figure, path, **others: drawn.append(figure))
    monkeypatch.setattr(curves, "write_atomically", nullcontext)
    draw_curves(tmp_path, "val/acc1")
    loss, accuracy = drawn[0].axes
    found = [{line.get_label(): line.get_xydata().tolist() for line in axes.lines} for axes in (loss, accuracy)]
    assert found[0] == {"train": [[20, 2.0], [40, 1.0]], "val": [[20, 1.9], [40, 0.9]]}
    assert found[1] == {"val": [[20, 25], [40, 75]], "test": [[40, 50]]}
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("loss", "acc1, %")


def test_a_run_without_rows_has_no_picture(tmp_path):
    assert draw_curves(tmp_path, "val/acc1") is None
    (tmp_path / "metrics.csv").write_text("step,train/loss\n20,1.0\n")
    assert read_curves(tmp_path / "metrics.csv") == {"train/loss": [(20, 1.0)]}
    assert draw_curves(tmp_path, "val/loss") is None
    assert not (tmp_path / "pictures").exists()


def test_a_picture_is_written(tmp_path):
    (tmp_path / "metrics.csv").write_text(TABLE)
    path = draw_curves(tmp_path, "val/acc1")
    assert path == tmp_path / "pictures" / "curves.png"
    assert path.read_bytes().startswith(b"\x89PNG")
