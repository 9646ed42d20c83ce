"""A bundle holds a run's answers, and nothing is written that does not."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from PIL import Image

import vitlab
from vitlab.bundles import writing
from vitlab.bundles.formats import open_onnx, open_torch_export
from vitlab.config.home import ROOT


@pytest.fixture(scope="module")
def bundle(digits_run, tmp_path_factory):
    """The bundle of a run on the digits."""
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    words = [f"run={digits_run}", "format=bundle", f"output={folder}"]
    found = subprocess.run(
        [sys.executable, "-m", "vitlab", "export", *words], capture_output=True, text=True, cwd=folder.parent
    )
    assert found.returncode == 0, found.stderr
    assert "0 of 359 first classes differ from predict's" in found.stdout
    return folder


@pytest.mark.slow
@pytest.mark.ci
def test_both_forms_answer_as_the_run_does_from_an_image_of_any_size(bundle, digits_run):
    run = vitlab.load(digits_run, device="cpu")
    random = np.random.RandomState(0)
    for height, width in ((8, 8), (32, 32), (57, 41)):
        image = random.randint(0, 256, (height, width)).astype(np.uint8)
        expected = run.predict(image, top_k=10)[0]
        inputs = {"image": torch.from_numpy(image)[None, ..., None]}
        names = json.loads((bundle / "labels.json").read_text())
        forms = (
            open_onnx(bundle / "classifier.onnx"),
            open_torch_export(bundle / "classifier.pt2", ["probabilities", "novelty"]),
        )
        for found in (form(inputs) for form in forms):
            by_name = dict(zip(names, found["probabilities"][0].tolist(), strict=True))
            for name, probability in expected.top:
                assert by_name[name] == pytest.approx(probability, abs=2e-3)
            assert float(found["novelty"]) == pytest.approx(expected.novelty, rel=0.02)


@pytest.mark.slow
@pytest.mark.ci
def test_its_index_names_each_file_with_its_digest(bundle):
    index = json.loads((bundle / "bundle.json").read_text())
    assert index["format"] == 1
    assert index["files"].keys() == {path.name for path in bundle.iterdir()} - {"bundle.json"}
    for name, facts in index["files"].items():
        content = (bundle / name).read_bytes()
        assert facts == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert (bundle / name).stat().st_mode & 0o044, "others may read it"
        assert str(ROOT).encode() not in content, "it names no folder of this machine"


@pytest.mark.slow
@pytest.mark.ci
def test_its_card_is_in_the_hubs_form_and_its_code_runs(bundle, digits_run, tmp_path):
    _, header, text = (bundle / "README.md").read_text().split("---\n", maxsplit=2)
    result = json.loads((digits_run / "result.json").read_text())
    facts = yaml.safe_load(header)
    (metric,) = facts["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == pytest.approx(result["test"]["test/acc1"], abs=1e-4)
    assert str(digits_run) not in text
    code = text.split("```python\n")[1].split("```")[0]
    Image.fromarray(np.zeros((40, 30, 3), np.uint8)).save(bundle / "photo.jpg")
    try:
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=bundle)
    finally:
        (bundle / "photo.jpg").unlink()
    assert found.returncode == 0, found.stderr
    assert "e-" in found.stdout or "0." in found.stdout


@pytest.mark.slow
def test_a_model_is_known_without_its_run(bundle, digits_run):
    labels = onnxruntime.InferenceSession(bundle / "model.onnx").get_modelmeta().custom_metadata_map["labels"]
    assert json.loads(labels) == vitlab.load(digits_run).class_names


@pytest.mark.slow
def test_nothing_is_written_that_answers_otherwise(cli, digits_run, tmp_path, monkeypatch):
    form = writing.FORMS["onnx"]

    def open_another(path, graph):
        run = form.open(path, graph)
        return lambda inputs: {name: value + 1e-3 for name, value in run(inputs).items()}

    monkeypatch.setitem(writing.FORMS, "onnx", replace(form, open=open_another))
    run = cli("export", f"run={digits_run}", "format=onnx", "output=out")
    assert run.status == 2
    assert "model.onnx gives logits that differ from the model's by 0.001" in run.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_it_is_uploaded_where_there_is_a_token(cli, digits_run, monkeypatch):
    import huggingface_hub

    calls = []
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    words = [f"run={digits_run}", "format=torch_export", "output=out"]
    refused = cli("export", *words, "push=org/name")
    assert (refused.status, "hf auth login" in refused.err) == (2, True)
    assert "give ORG/NAME" in cli("export", *words, "push=name").err
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_x")
    monkeypatch.setattr(huggingface_hub, "create_repo", lambda name, exist_ok: calls.append(name))
    monkeypatch.setattr(
        huggingface_hub,
        "upload_folder",
        lambda repo_id, folder_path: calls.append(sorted(map(str, folder_path.iterdir()))),
    )
    run = cli("export", *words, "push=org/name")
    assert run.status == 0, run.err
    assert calls[0] == "org/name"
    assert "out/model.pt2" in calls[1]


@pytest.mark.slow
def test_images_that_keep_their_own_shape_are_refused(cli, tmp_path):
    words = ["crop=native", "crop.train.max_tokens=16", "trainer.max_epochs=1", "logger=none"]
    assert cli("train", *words, "model=vit_mu4", f"hydra.run.dir={tmp_path}/run").status == 0
    run = cli("export", "run=run", "format=bundle", "output=out")
    assert run.status == 2
    assert "an exported graph takes images of one size, but TokenBudget gives each its own" in run.err
