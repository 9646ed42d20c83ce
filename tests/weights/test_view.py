"""How the weights know images, by each kind of name, and without a network."""

import json
import time

import pytest
import timm
from safetensors.torch import save_file
from test_hub import cache, cut_off  # noqa: F401
from torch import zeros

from vitlab.errors import CheckpointError
from vitlab.weights import InputSettings, find_view

NAME = "vit_tiny_patch16_224"


def test_timm_says_it_by_name(cache, cut_off):  # noqa: F811
    repository = timm.get_pretrained_cfg(NAME).hf_hub_id
    save_file({"x": zeros(1)}, cache(repository) / "model.safetensors")
    assert find_view(f"timm:{NAME}") == InputSettings([0.5, 0.5, 0.5], [0.5, 0.5, 0.5], 224, "bicubic")


def test_names_that_are_not_at_hand_are_refused_at_once(cache, cut_off):  # noqa: F811
    for name in (f"timm:{NAME}", "hf:google/vit-base-patch16-224"):
        began = time.perf_counter()
        with pytest.raises(CheckpointError, match="not in the cache"):
            find_view(name)
        assert time.perf_counter() - began < 5


def test_files_beside_the_weights_say_it(tmp_path, cache, cut_off):  # noqa: F811
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", "image_size": 384}))
    assert find_view(str(tmp_path)) == InputSettings(image_size=384)
    said = {"image_mean": [0.1], "image_std": [0.2], "size": {"height": 96, "width": 96}, "resample": 2}
    folder = cache("someone/vit")
    for root in (tmp_path, folder):
        (root / "config.json").write_text(json.dumps({"model_type": "vit"}))
        (root / "preprocessor_config.json").write_text(json.dumps(said))
    (tmp_path / "model.safetensors").touch()
    for name in (str(tmp_path), str(tmp_path / "model.safetensors"), "hf:someone/vit"):
        assert find_view(name) == InputSettings([0.1], [0.2], 96, "bilinear")
    cropped = {**said, "size": 256, "crop_size": {"height": 224, "width": 224}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(cropped))
    assert find_view(str(tmp_path)).image_size == 224
    about = {"mean": [0.3], "std": [0.4], "input_size": [1, 32, 32], "interpolation": "bicubic"}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": NAME, "pretrained_cfg": about}))
    assert find_view(str(tmp_path)) == InputSettings([0.3], [0.4], 32, "bicubic")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"size": {}, "crop_size": true}'])
def test_files_that_say_nothing(tmp_path, content):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "preprocessor_config.json").write_text(content)
    assert find_view(str(tmp_path)) == InputSettings()


def test_a_bare_file_says_nothing(tmp_path):
    (tmp_path / "weights.npz").touch()
    assert find_view(str(tmp_path / "weights.npz")) == InputSettings()
    assert find_view(str(tmp_path / "nowhere.pth")) == InputSettings()


def test_a_run_says_what_it_saw_or_found(short_run):
    assert find_view(str(short_run)) == InputSettings([0.3053], [0.3760], 32, "bilinear")


def test_mean_and_std_are_stated_together():
    assert InputSettings([0.5], None, 32).get_stated() == {"image_size": 32}
    assert InputSettings([0.5], [0.2]).get_stated() == {"mean": [0.5], "std": [0.2]}
