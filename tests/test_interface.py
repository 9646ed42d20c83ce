"""vitlab from Python: what it gives for which images, what it refuses, and whom it leaves alone."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import BARE, SRC, TINY, image_folder
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from PIL import Image

import vitlab
from vitlab.config.in_process import format_overrides
from vitlab.errors import CheckpointError, ConfigError, DataError, VitlabError

CHEAP = [word.replace("trainer=cpu", "trainer.accelerator=cpu") for word in (*TINY, *BARE)]


@pytest.fixture(scope="module")
def run(digits_run):
    return vitlab.load(digits_run, device="cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images of another size and other colours than the run's."""
    return image_folder(tmp_path_factory.mktemp("photos"), count=3, size=20)


def python(*words, cwd):
    """What is printed by a Python that has not seen this test's Hydra."""
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- opening


def test_the_package_is_cheap_to_import_and_says_what_it_has(tmp_path):
    code = "import sys, vitlab; print(len({'torch', 'hydra', 'omegaconf', 'numpy'} & set(sys.modules)))\n"
    code += "print(set(vitlab.__all__) <= set(dir(vitlab)))"
    assert python("-c", code, cwd=tmp_path).split() == ["0", "True"]
    for name in vitlab.__all__:
        assert getattr(vitlab, name).__doc__
    with pytest.raises(AttributeError, match=r"vitlab has no laod; it has .*load"):
        _ = vitlab.laod


@pytest.mark.slow
@pytest.mark.ci
def test_a_run_opens_where_hydra_has_not_started(digits_run, photos, tmp_path):
    code = """
import sys, vitlab
run = vitlab.load(sys.argv[1])
print(len(run.predict(sys.argv[2])), len(vitlab.load(run.path).predict(sys.argv[2])))
"""
    assert python("-c", code, digits_run, photos, cwd=tmp_path).split() == ["6", "6"]


@pytest.mark.parametrize("where", ["nowhere", ""])
def test_what_is_no_run_is_refused(where, tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no run|the run has not saved a checkpoint yet") as caught:
        vitlab.load(tmp_path / where)
    assert caught.value.__cause__ is None


def test_a_run_says_what_it_is(run, digits_run):
    assert (run.folder, run.path) == (digits_run, digits_run / "checkpoints" / "best.ckpt")
    assert run.class_names == [str(digit) for digit in range(10)]
    assert run.config["trainer"]["max_epochs"] == 2
    assert run.result["test"]["test/acc1"] == pytest.approx(run.result["test"]["test/acc1"])
    assert not run.model.training


# -- images


def pixels(file):
    return np.asarray(Image.open(file))


def tensor(file):
    return torch.from_numpy(pixels(file).copy()).permute(2, 0, 1)


FORMS = {
    "text": str,
    "path": Path,
    "list": lambda file: [file],
    "Pillow": Image.open,
    "array": pixels,
    "floats": lambda file: pixels(file).astype(np.float32) / 255,
    "tensor": tensor,
    "tensor of floats": lambda file: tensor(file) / 255,
    "batch": lambda file: tensor(file)[None],
    "batch of arrays": lambda file: pixels(file)[None],
}


@pytest.mark.parametrize("form", FORMS)
def test_an_image_is_the_same_in_each_form(run, photos, form):
    file = photos / "train" / "cat" / "0.png"
    given = FORMS[form](file)
    assert torch.equal(run.inputs(given), run.inputs(file))
    assert [one.image for one in run.predict(given)] == [file if form in ("text", "path", "list") else None]


def test_an_image_is_turned_as_the_camera_was_held(run, tmp_path):
    image = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    assert torch.equal(run.inputs(Image.open(tmp_path / "turned.png")), run.inputs(tmp_path / "turned.png"))
    assert not torch.equal(run.inputs(image), run.inputs(tmp_path / "turned.png"))


REFUSED = [
    (3, "a int is not an image; give the name of a file"),
    ([], "the list of images is empty"),
    ("nowhere/*.png", "names no image file"),
    (np.zeros(3), r"ndarray \(3,\) has 1 dimension"),
    (np.zeros((0, 8)), r"cannot read ndarray \(0, 8\): it has no pixels"),
    (np.zeros((8, 8), int), r"pixels of int64; give uint8, or floats from 0 to 1"),
    (np.full((8, 8), 2.0), r"pixels from 2 to 2; give uint8, or floats from 0 to 1, not normalised"),
    (np.full((8, 8), np.nan), "pixels from nan to nan"),
    (np.zeros((3, 8, 8)), r"cannot read ndarray \(3, 8, 8\): an array is \(H, W\) or \(H, W, C\), a tensor"),
]


@pytest.mark.parametrize(("given", "sentence"), REFUSED, ids=[sentence[:20] for _, sentence in REFUSED])
def test_what_is_no_image_is_refused(run, given, sentence):
    for method in (run.predict, run.features, run.inputs, run.attention):
        with pytest.raises(DataError, match=sentence) as caught:
            method(given)
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__  # the traceback is of this error alone


def test_a_file_that_cannot_be_read_is_named(run, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"cannot read .*broken.png: no image that Pillow knows"):
        run.predict(tmp_path)


def test_files_that_cannot_be_read_are_left_out_on_request(run, photos, tmp_path):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for number, file in enumerate(sorted(photos.rglob("*.*"))):
        shutil.copy(file, mixed / f"{number}{file.suffix}")
        (mixed / f"{number}x.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"6 of 12 images are left out: cannot read .*0x.png"):
        found = run.predict(mixed, batch_size=1, skip_unreadable=True)
    assert [one.image.stem for one in found] == list("012345")
    assert [one.top for one in found] == [one.top for one in run.predict(photos, batch_size=1)]
    with pytest.raises(DataError, match=r"none of 6 images can be read: cannot read .*0x.png"):
        run.predict([file for file in sorted(mixed.iterdir()) if "x" in file.name], skip_unreadable=True)


# -- what a model makes of them


def test_predictions_are_those_of_the_command(run, photos, cli):
    done = cli("predict", f"run={run.folder}", f"images={photos}", "output=here.csv", "top_k=3")
    assert done.status == 0, done.err
    with open("here.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = run.predict(photos, top_k=3, batch_size=4)
    assert len(found) == len(rows) == 6
    for one, row in zip(found, rows, strict=True):
        assert (str(one.image), one.class_name) == (row["image"], row["class_1"])
        assert one.top[0] == (one.class_name, one.probability)
        for rank, (name, probability) in enumerate(one.top, start=1):
            assert name == row[f"class_{rank}"]
            assert probability == pytest.approx(float(row[f"probability_{rank}"]), abs=1e-5)


def test_the_model_takes_the_inputs_and_gives_the_predictions(run, photos):
    with torch.no_grad():
        probabilities = (run.model(run.inputs(photos)) / run.temperature).softmax(dim=1)  # (6, 10)
    found = run.predict(photos, top_k=99)
    assert [len(one.top) for one in found] == [10] * 6
    given = torch.tensor([[dict(one.top)[name] for name in run.class_names] for one in found])
    assert torch.allclose(given, probabilities, atol=1e-6)


def test_features_are_what_the_head_sees(run, photos):
    features = run.features(photos, batch_size=4)
    assert features.dtype == torch.float32
    with torch.no_grad():
        assert torch.allclose(run.model.head(features), run.model(run.inputs(photos)), atol=1e-5)


def test_attention_is_a_distribution_over_tokens_in_each_layer(run, photos):
    layers = run.attention(photos)
    model = run.model
    h, w = model.patch_embed.grid
    tokens = model.num_prefix_tokens + h * w
    assert [tuple(weights.shape) for weights in layers] == [(6, 2, tokens, tokens)] * model.depth
    for weights in layers:
        assert torch.allclose(weights.sum(dim=-1), torch.ones(()), atol=1e-5)


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"batch_size": 0}])
def test_a_count_below_one_is_refused(run, photos, wrong):
    with pytest.raises(ConfigError, match="0 is not at least 1"):
        run.predict(photos, **wrong)


def test_a_run_of_classes_takes_no_labels(run, photos):
    with pytest.raises(
        ConfigError, match="does not compare images with texts, so it takes no labels=; give a run of task=contrastive"
    ):
        run.predict(photos, labels=["cat", "dog"])


def test_evaluation_gives_what_the_run_itself_tested(run):
    metrics = run.evaluate("test", trainer={"precision": "32-true"})
    assert metrics == pytest.approx(run.result["test"])
    with pytest.raises(ConfigError, match="split 'tset' is not one of: train, val, test"):
        run.evaluate("tset")


# -- training


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "vit_b16", "seed": 1}, ["model='vit_b16'", "seed=1"]),
        ({"trainer": {"max_epochs": 3, "devices": 1}}, ["trainer.max_epochs=3", "trainer.devices=1"]),
        ({"optimizer": {"lr": 1e-4}}, ["optimizer.lr=0.0001"]),
        ({"trainer.max_epochs": 3}, ["trainer.max_epochs=3"]),
        ({"compile": True, "sweep": None}, ["compile=true", "sweep=null"]),
        ({"callbacks": ["default", "ema"]}, ["callbacks=['default','ema']"]),
        ({"data.source.root": Path("a b/it's")}, [r"data.source.root='a b/it\'s'"]),
        ({"data.source.splits": [{"train": "here"}]}, ["data.source.splits=[{train:'here'}]"]),
    ],
)
def test_options_are_words_of_the_command_line(options, words):
    assert format_overrides(options) == words


def test_a_value_that_no_config_holds_is_refused():
    with pytest.raises(ConfigError, match=r"trainer.callbacks: a set cannot be a value in a config"):
        vitlab.train(trainer={"callbacks": {1}})


@pytest.fixture
def somebodys_hydra(tmp_path, monkeypatch):
    """Somebody else has initialised Hydra, on a config of theirs, and works elsewhere than the run is."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "their.yaml").write_text("a: 1\n")
    monkeypatch.chdir(tmp_path)
    with initialize_config_dir(str(tmp_path / "theirs"), version_base="1.3"):
        yield GlobalHydra.instance().hydra
        assert compose("their").a == 1


def test_training_leaves_a_run_and_somebody_elses_hydra_as_it_was(somebodys_hydra, tmp_path, capfd):
    folder = image_folder(tmp_path / "own", classes=("cat", "dog"), count=40)
    HydraConfig.instance().cfg = "theirs"
    options = {"data": {"num_classes": 2, "image_size": 8}, "global_batch_size": 16, "trainer": {"max_epochs": 1}}
    first = vitlab.train(*CHEAP[1:], root=folder, model="vit_mu4", **options)
    assert first.folder.parent == tmp_path / "runs" / "vit_mu4_folder"
    assert first.result["steps"] == 3
    assert {one.class_name for one in first.predict(folder)} <= {"cat", "dog"}
    again = vitlab.train(resume=first.folder, trainer={"max_epochs": 2})
    assert (again.folder, again.result["steps"]) == (first.folder, 6)
    assert "vitlab predict run=runs/vit_mu4_folder" in capfd.readouterr().out
    assert GlobalHydra.instance().hydra is somebodys_hydra
    assert HydraConfig.instance().cfg == "theirs"
    HydraConfig.instance().cfg = None


@pytest.mark.parametrize(
    ("words", "options", "sentence"),
    [
        ((), {"modle": "vit_b16"}, "there is no key modle; did you mean model?"),
        ((), {"model": "vit_b17"}, "there is no model=vit_b17; did you mean vit_b14_registers|vit_b1"),
        ((), {"seed": "one"}, "seed one is not a whole number"),
        (("-m",), {}, "'-m' is not an override of the form KEY=VALUE; start sweeps"),
        ((), {"root": "nowhere"}, "there is no folder nowhere"),
    ],
)
def test_what_could_not_be_trained_is_refused_and_leaves_nothing(
    words, options, sentence, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(VitlabError, match=sentence) as caught:
        vitlab.train(*words, **options)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not list(tmp_path.rglob("checkpoints"))
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_script_trains_with_two_processes(tmp_path):
    """Which Lightning starts as the same script once more."""
    script = tmp_path / "own.py"
    words = [word for word in CHEAP if "accelerator" not in word] + ["trainer=ddp", "trainer.accelerator=cpu"]
    script.write_text(f"""
import vitlab
run = vitlab.train(*{words}, trainer={{"devices": 2, "max_epochs": 1}}, data={{"split": {{"labels_per_class": 26}}}})
print("own:", run.folder)
""")
    done = python(script, cwd=tmp_path)
    assert "device   2 x cpu" in done
    assert len(set(re.findall("own: .*", done))) == 1
    assert len(list(tmp_path.glob("runs/*/*"))) == 1


# -- models


def test_a_model_is_that_of_its_config():
    model = vitlab.create_model("vit_mu4", num_classes=3, image_size=32, in_chans=1, position="sincos_2d")
    assert isinstance(model, vitlab.VisionTransformer)
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 3)
    assert not model.pos_embed.requires_grad
    assert sum(p.numel() for p in vitlab.create_model("vit_ti16").parameters()) == 5_717_416  # AugReg, table 1


def test_a_model_starts_from_the_weights_of_a_run(run):
    sizes = {"num_classes": 3, "image_size": run.config["data"]["image_size"], "in_chans": 1}
    model = vitlab.create_model("vit_mu4", pretrained=run.path, **sizes)
    assert torch.equal(model.blocks[0].attn.qkv.weight, run.model.blocks[0].attn.qkv.weight)
    assert model.head.out_features == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "vit_mu5"}, "there is no model=vit_mu5; did you mean vit_mu4?"),
        ({"name": "vit_mu4", "num_head": 3}, "there is no key model.num_head; did you mean model.num_heads?"),
        ({"name": "vit_mu4", "pretrained": "nowhere"}, "nowhere"),
        ({"name": "vit_mu4", "image_size": 30}, "30"),
    ],
)
def test_a_model_that_there_is_none_of_is_refused(arguments, sentence):
    name = arguments.pop("name")
    with pytest.raises(VitlabError, match=sentence):
        vitlab.create_model(name, **arguments)
