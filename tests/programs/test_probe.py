"""python src/probe.py, as a user runs it."""

import json

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from frozen_features import features_of, represented
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier
from torchvision.models import resnet18

from vitlab.data import Synthetic
from vitlab.reports.intervals import half_width, wilson_interval

WAVES = ["data=synthetic", "data.source.num_samples=60", "data.num_classes=4", "data.loading.num_workers=0"]


def of_split(arrays, split):
    of = arrays["splits"] == split
    return arrays["features"][of], arrays["labels"][of]


@pytest.fixture(scope="module")
def probed(digits_run, tmp_path_factory):
    """Where the shared run is probed: other tests see it without the result."""
    return tmp_path_factory.mktemp("probed") / "probe.json"


def test_the_features_of_a_run_tell_classes_and_the_test_split_only_scores(cli, digits_run, probed):
    run = cli("probe", f"run={digits_run}", f"output={probed}")
    assert run.status == 0, run.err
    content = json.loads(probed.read_text())
    assert content["images_used"] == {"train": 1258, "val": 180, "test": 359}
    assert content["features"] == 32
    rows = {row["probe"]: row for row in content["probes"]}
    assert list(rows) == ["k-NN", "1-shot", "5-shot", "10-shot", "25-shot"]
    for row in rows.values():
        low, high = row["test/interval"]
        assert low < row["test/acc1"] < high
        assert len(row["test/each"]) == (1 if row["probe"] == "k-NN" else 3)  # draws
        assert row["test/acc1"] == pytest.approx(np.mean(row["test/each"]))
        assert row["test/each"] == pytest.approx([round(share * 359) / 359 for share in row["test/each"]])
        images = row["test/acc1"] - wilson_interval(row["test/acc1"] * 359, 359)[0]
        assert low == pytest.approx(max(0, row["test/acc1"] - np.hypot(half_width(row["test/each"]), images)))
        assert f"{row['test/acc1']:.2%}" in run.out
    assert 0.2 < rows["k-NN"]["test/acc1"] < 0.9  # chance is 10%
    assert rows["1-shot"]["test/acc1"] < rows["25-shot"]["test/acc1"]
    assert rows["25-shot"]["test/acc1"] > 0.4
    assert len(set(rows["1-shot"]["test/each"])) > 1

    # the same by scikit-learn, from the file of features: k is the best on val, the first of equals
    arrays = features_of(cli("features", f"run={digits_run}", "output=f.npz"), "f.npz")
    scores = {}
    for k in (5, 10, 20, 50, 100, 200):
        neighbours = KNeighborsClassifier(
            k, metric="cosine", algorithm="brute", weights=lambda distance: np.exp(-distance.astype(float) / 0.07)
        ).fit(*of_split(arrays, "train"))
        scores[k] = [neighbours.score(*of_split(arrays, split)) for split in ("val", "test")]
    chosen = rows["k-NN"]["chosen"]["k"]
    found = [rows["k-NN"]["val/acc1"], rows["k-NN"]["test/acc1"]]
    assert found == pytest.approx(scores[chosen], abs=1.5 / 180)
    assert found[0] >= max(score for score, _ in scores.values()) - 1.5 / 180


def test_a_run_sees_other_images_as_it_saw_its_own(cli, digits_run):
    """In its colours and size, normalised by its mean and std, and the classes may be others."""
    arrays = features_of(cli("features", f"run={digits_run}", *WAVES, "output=f.npz"), "f.npz")
    pool = Synthetic(num_samples=60, num_classes=4, in_chans=3, image_size=32, noise=0.1).open()["train"]
    by_name = {pool.name(i): i for i in range(len(pool))}
    order = [by_name[name] for name in arrays["names"].tolist()]
    grays = np.stack([np.asarray(Image.fromarray(pool.load(i)).convert("L")) for i in order])
    expected = represented(digits_run, torch.from_numpy(grays)[:, None])
    np.testing.assert_allclose(arrays["features"], expected, atol=2e-5)
    assert len(order) == 60
    run = cli("probe", f"run={digits_run}", *WAVES, "output=waves.json")
    assert run.status == 0, run.err
    assert "classes have not enough images for 25-shot" in run.out


def test_a_run_sees_arrays(cli, digits_run):
    pixels = np.random.RandomState(0).randint(0, 256, (60, 8, 8, 1), dtype=np.uint8)
    np.savez("some.npz", images=pixels, labels=np.arange(60) % 3)
    options = ["data=arrays", "data.source.images.train=some.npz", "data.num_classes=3", "data.loading.num_workers=0"]
    arrays = features_of(cli("features", f"run={digits_run}", *options, "output=f.npz"), "f.npz")
    assert arrays["features"].shape == (60, 32)


def test_few_labels_are_few_in_a_probe_too(cli, digits_run):
    run = cli("probe", f"run={digits_run}", "+data.split.labels_per_class=7", "k=[5]", "shots=[5]", "output=few.json")
    assert run.status == 0, run.err
    with open("few.json") as file:
        assert json.load(file)["images_used"] == {"train": 70, "val": 180, "test": 359}
    for option in ("k=20", "shots=10", "l2_exponents=3"):
        run = cli("probe", f"run={digits_run}", option)
        assert run.status == 2, run.err
        assert option.split("=")[0] in run.err.strip().splitlines()[-1]


def test_a_model_without_a_run(cli, tmp_path):
    """Its seed says all of random weights; torchvision's own network gives the same features."""
    options = ["model=resnet18", "model.in_chans=3", "data.image_size=16", "data.source.noise=0", *WAVES]
    arrays = features_of(cli("features", *options, "output=f.npz", "seed=3"), "f.npz")
    pl.seed_everything(3, verbose=False)
    model = resnet18(weights=None, num_classes=4).eval()
    model.fc = torch.nn.Identity()
    pool = Synthetic(num_samples=60, num_classes=4, in_chans=3, image_size=16, noise=0.0).open()["train"]
    by_name = {pool.name(i): i for i in range(len(pool))}
    order = [by_name[name] for name in arrays["names"].tolist()]
    images = torch.from_numpy(np.stack([pool.load(i) for i in order])).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = model((images / 255 - 0.5) / 0.25).numpy()
    np.testing.assert_allclose(arrays["features"], expected, atol=1e-4)
    run = cli("probe", *options, "shots=[1]", "k=[1,3,1000]", "precision=bf16-mixed")
    assert run.status == 0, run.err
    (output,) = (tmp_path / "runs" / "probe" / "resnet18_synthetic").glob("*/probe.json")
    assert [row["probe"] for row in json.loads(output.read_text())["probes"]] == ["k-NN", "1-shot"]


def test_unreadable_images_are_left_out_and_counted(cli, tmp_path):
    for k in range(30):
        folder = tmp_path / "images" / "train" / "ab"[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 8 * k, dtype=np.uint8)).save(folder / f"{k:02}.png")
    (tmp_path / "images" / "train" / "a" / "06.png").write_bytes(b"no picture")
    options = ["data=folder", "data.source.root=images", "data.source.index_root=index", "data.num_classes=2"]
    options += ["model=vit_mu4", "data.image_size=8", "data.loading.num_workers=0", "output=f.npz"]
    run = cli("features", *options)
    assert run.status == 3
    assert "06.png" in run.err
    assert not (tmp_path / "f.npz").exists()
    arrays = features_of(run := cli("features", *options, "data.loading.on_bad_image=skip"), "f.npz")
    assert len(arrays["features"]) == 29
    assert "1 unreadable images" in run.out
    assert not any("06.png" in name for name in arrays["names"].tolist())


def test_images_of_several_classes_have_features_and_no_probe(cli):
    options = ["model=vit_mu4", "data=synthetic_multilabel", "data.source.num_samples=40", "data.loading.num_workers=0"]
    arrays = features_of(cli("features", *options, "output=f.npz"), "f.npz")
    assert arrays["labels"].shape == (40, len(arrays["class_names"]))
    assert set(np.unique(arrays["labels"])) == {0, 1}
    assert arrays["labels"].sum(axis=1).max() > 1
    run = cli("probe", *options)
    assert run.status == 2
    assert "may have several" in run.err


@pytest.mark.parametrize(
    ("entry", "arguments", "status", "words"),
    [
        ("probe", ["RUN", "k=[0]"], 2, ["k [0]"]),
        ("probe", ["RUN", "k=[]", "shots=[]"], 2, ["k and shots"]),
        ("probe", ["RUN", "k=[2000]"], 2, ["k [2000]", "1258 training images"]),
        ("probe", ["RUN", "temperature=0"], 2, ["temperature 0"]),
        ("probe", ["RUN", "l2_exponents=[]"], 2, ["l2_exponents []"]),
        ("probe", ["RUN", "batch_size=0"], 2, ["batch_size 0"]),
        ("probe", ["RUN", "precision=fp8"], 2, ["precision 'fp8'", "bf16-mixed"]),
        ("probe", ["RUN", "model=vit_b16"], 2, ["model cannot be set with run=", "run="]),
        ("probe", ["RUN", "crop=native"], 2, ["crop cannot be set with run="]),
        ("probe", ["RUN", "data=digits", "data.image_size=64"], 2, ["data.image_size cannot be set with run="]),
        ("probe", ["RUN", "+data.mean=[0.5]"], 2, ["data.mean cannot be set with run="]),
        ("probe", ["model=vit_mu4"], 2, ["run=", "model= and data="]),
        ("probe", ["data=digits"], 2, ["run=", "model= and data="]),
        ("probe", ["model=vit_mu4", "data=digits", "model.num_classes=3"], 2, ["model.num_classes is 3"]),
        ("probe", ["run=nowhere"], 4, ["nowhere"]),
        ("features", ["RUN", "output=f.csv"], 2, ["f.csv", ".npz, .safetensors"]),
        ("features", ["RUN", "output=f.npz", "split=dev"], 2, ["split 'dev'", "all, train, val, test"]),
        ("features", ["output=f.npz"], 2, ["run=", "model= and data="]),
        ("features", ["model=vit_mu4", "data=digits", "output=f.npz", "model.pretrained=nowhere"], 4, ["nowhere"]),
    ],
    ids=str,
)
def test_nonsense_is_refused_in_one_sentence(cli, tmp_path, digits_run, entry, arguments, status, words):
    arguments = [f"run={digits_run}" if argument == "RUN" else argument for argument in arguments]
    run = cli(entry, *arguments)
    lines = [line for line in run.err.splitlines() if line.strip() and "arn" not in line]
    assert run.status == status, run.err
    assert len(lines) == 1, run.err
    assert all(word in lines[0] for word in words), run.err
    assert not list(tmp_path.iterdir())
    assert not (digits_run / "probe").exists()
