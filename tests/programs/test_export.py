"""python src/export.py, as a user runs it."""

import json

import pytest
import torch

from vitlab.data.batches.preprocessing import Preprocessing


def the_runs_model(run):
    from vitlab.run.inference.saved_run import SavedRun

    saved = SavedRun.open(str(run))
    return saved.task().model.eval(), saved.checkpoint["run"]["class_names"]


def test_an_exported_run_opens_in_timm(cli, digits_run, tmp_path):
    import timm
    from timm.data import create_transform, resolve_model_data_config

    run = cli("export", f"run={digits_run}", "output=out")
    assert run.status == 0, run.err
    assert "local-dir:out" in run.out
    model = timm.create_model(f"local-dir:{tmp_path}/out", pretrained=True).eval()
    own, names = the_runs_model(digits_run)
    x = torch.randn(3, 1, 32, 32)
    torch.testing.assert_close(model(x), own(x), atol=1e-5, rtol=0)
    assert model.pretrained_cfg["label_names"] == names
    data = resolve_model_data_config(model)
    assert (*data["mean"], *data["std"], *data["input_size"]) == (0.3053, 0.3760, 1, 32, 32)
    assert create_transform(**data) is not None


def test_an_exported_run_opens_in_transformers_with_its_preprocessing(cli, digits_run, tmp_path):
    import numpy as np
    from transformers import ViTForImageClassification

    run = cli("export", f"run={digits_run}", "format=huggingface", "output=out")
    assert run.status == 0, run.err
    model = ViTForImageClassification.from_pretrained(tmp_path / "out").eval()
    own, names = the_runs_model(digits_run)
    x = torch.randn(3, 1, 32, 32)
    torch.testing.assert_close(model(x).logits, own(x), atol=1e-5, rtol=0)
    assert [model.config.id2label[i] for i in range(10)] == names
    written = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())
    image = np.random.default_rng(0).integers(0, 256, (1, 1, 32, 32), dtype=np.uint8)
    ours = Preprocessing(mean=[0.3053], std=[0.3760], in_chans=1, patch_size=4).normalize(torch.from_numpy(image))
    theirs = (image * written["rescale_factor"] - written["image_mean"][0]) / written["image_std"][0]
    torch.testing.assert_close(ours, torch.from_numpy(theirs).float())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "status", "words"),
    [
        (["format=tflite"], 2, "format 'tflite' is not one of: bundle, onnx, torch_export, timm, huggingface"),
        (["output=."], 2, "output=. is not empty"),
        (["run=nothing"], 4, "nothing"),
    ],
)
def test_exports_that_are_refused(cli, digits_run, tmp_path, overrides, status, words):
    (tmp_path / "file").write_text("")
    run = cli("export", f"run={digits_run}", "output=out", *overrides)
    assert run.status == status
    assert words in run.err
    assert not (tmp_path / "out").exists()
