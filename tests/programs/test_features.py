"""python src/features.py, as a user runs it."""

import json

import numpy as np
import torch
from frozen_features import features_of, represented
from PIL import Image
from safetensors import safe_open

from vitlab.data import Digits


def test_the_file_of_features_holds_every_image_once_and_says_what_made_it(cli, digits_run):
    arrays = features_of(cli("features", f"run={digits_run}", "output=deep/f.npz"), "deep/f.npz")
    assert arrays["features"].shape == (1797, 32)
    assert arrays["features"].dtype == np.float32
    assert len(set(arrays["names"].tolist())) == 1797
    assert arrays["class_names"].tolist() == [str(number) for number in range(10)]
    assert [(arrays["splits"] == split).sum() for split in ("train", "val", "test")] == [1258, 180, 359]
    pool = Digits().open()["train"]
    by_name = {pool.name(i): i for i in range(len(pool))}
    order = [by_name[name] for name in arrays["names"].tolist()]
    assert np.array_equal(arrays["labels"], pool.targets.values[order])
    pixels = [Image.fromarray(pool.load(i)).resize((32, 32), Image.Resampling.BILINEAR) for i in order[:40]]
    images = torch.from_numpy(np.stack([np.asarray(image) for image in pixels]))[:, None]
    np.testing.assert_allclose(arrays["features"][:40], represented(digits_run, images), atol=2e-5)
    about = json.loads(str(arrays["metadata"]))
    assert about["checkpoint"].endswith("best.ckpt")
    assert about["preprocessing"]["image_size"] == 32
    assert about["model"]["embed_dim"] == 32
    assert about["versions"]["torch"]


def test_safetensors_hold_the_same(cli, digits_run, tmp_path):
    arrays = features_of(cli("features", f"run={digits_run}", "output=f.npz", "split=val"), "f.npz")
    assert cli("features", f"run={digits_run}", "output=f.safetensors", "split=val").status == 0
    with safe_open(tmp_path / "f.safetensors", "numpy") as file:
        header = {key: json.loads(value) for key, value in file.metadata().items()}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    for key in ("features", "labels"):
        assert np.array_equal(tensors[key], arrays[key])
    assert json.loads(tensors["names"].tobytes()) == arrays["names"].tolist()
    assert [header["splits"][place] for place in tensors["splits"]] == arrays["splits"].tolist() == ["val"] * 180
    assert header["class_names"] == arrays["class_names"].tolist()
    assert header["metadata"] == json.loads(str(arrays["metadata"]))
    assert {path.name for path in tmp_path.iterdir()} == {"f.npz", "f.safetensors"}  # nothing half-written
