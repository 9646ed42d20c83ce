"""python src/compress.py, as a user runs it."""

import csv
import json

import numpy as np
import onnxruntime
import pytest
from conftest import BARE, FEW, finished, refuses

from vitlab.bundles import formats

QUICK = ["merge=[0,8]", "num_images=12", "batch_sizes=[1,4]", "threads=1", "calibration_images=8"]


@pytest.mark.slow
@pytest.mark.ci
def test_a_run_is_compressed_to_a_table_a_picture_and_a_file(cli, digits_run, tmp_path):
    run = cli("compress", f"run={digits_run}", *QUICK, "max_drop=100", "output=out")
    assert run.status == 0, run.err
    written = json.loads((tmp_path / "out" / "compression.json").read_text())
    rows = {row["model"]: row for row in written["rows"]}
    assert written["test_images"] == 359
    assert {"eager float32", "ONNX float32", "ONNX int8 dynamic", "ONNX int8 static", "ONNX int8 dynamic, r=8"} <= set(
        rows
    )
    assert float(rows["ONNX float32"]["same class %"]) == 100
    assert float(rows["ONNX int8 dynamic"]["same class %"]) > 80  # after two epochs, logits lie close together
    assert all(float(row["p50 ms, B=4"]) > 0 for row in rows.values() if "skipped" not in row)
    own = json.loads((digits_run / "result.json").read_text())["test"]["test/acc1"]
    assert float(rows["eager float32"]["acc1 %"]) == pytest.approx(100 * own, abs=0.01)
    with (tmp_path / "out" / "compression.csv").open() as file:
        assert [row["model"] for row in csv.DictReader(file)] == list(rows)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("bundle", "compression.json", "compression.csv", "compression.png")
    }
    session = onnxruntime.InferenceSession(
        tmp_path / "out" / "bundle" / "model.onnx", providers=["CPUExecutionProvider"]
    )
    logits, *_ = session.run(None, {"pixels": np.zeros((3, 1, 32, 32), dtype=np.float32)})
    assert logits.shape == (3, 10)
    assert f"chosen   {written['chosen']}" in run.out


@pytest.mark.slow
def test_ways_that_a_model_does_not_have_are_skipped_with_the_reason(cli, tmp_path):
    folder = finished(tmp_path / "run", *BARE, *FEW, "trainer.max_epochs=1", "model.position=rotary")
    run = cli("compress", f"run={folder}", *QUICK, "output=out")
    assert run.status == 0, run.err
    assert "token merging, r=8 is skipped: positions act in each block" in run.out


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["run=nothing"], 4, "nothing"),
        (["max_drop=-1"], 2, "max_drop -1"),
        (["merge=[-4]"], 2, "merge"),
        (["batch_sizes=[0]"], 2, "batch_sizes"),
        (["output=there"], 2, "output=there is not empty"),
    ],
)
def test_what_cannot_be_compressed_is_refused_in_a_sentence(cli, short_run, tmp_path, words, status, told):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.txt").touch()
    run = cli("compress", f"run={short_run}", *words)
    assert refuses(run, told), run.err
    assert run.status == status
    assert not (short_run / "compress").exists()


def test_an_empty_list_of_batch_sizes_is_refused(cli, short_run):
    assert refuses(cli("compress", f"run={short_run}", "batch_sizes=[]"), "batch_sizes [] is empty; give at least one")


def test_missing_libraries_are_named(cli, short_run, monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "onnxruntime" else name)
    assert refuses(cli("compress", f"run={short_run}"), "ONNX files need onnxruntime; pip install")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["model=mae_xs4", "task=masked_autoencoding"], "one class for each image (MaskedAutoencoding)"),
        (["model=resnet20"], "needs a Vision Transformer of vitlab, but the model"),
        (["data=synthetic_multilabel", "task=multilabel"], "one class for each image (MultilabelClassification)"),
    ],
)
def test_a_run_without_one_class_for_each_image_or_without_a_vit_is_refused(cli, tmp_path, words, told):
    few = FEW if "data=" not in words[0] else []
    folder = finished(tmp_path / "run", *BARE, *few, "trainer.max_epochs=1", "callbacks=default", *words)
    assert refuses(cli("compress", f"run={folder}"), told)
