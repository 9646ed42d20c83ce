"""model.pretrained=published: the weights that a preset names exist, and are of its architecture."""

import sys

import pytest
import timm
from conftest import mostly_slow
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from vitlab.config.home import CONF
from vitlab.errors import CheckpointError
from vitlab.run.building.model import build_model, find_weights, load_pretrained
from vitlab.weights.by_timm import load_config

PRESETS = sorted(path.stem for path in (CONF / "model").glob("[!_]*.yaml") if "\npublished: timm:" in path.read_text())


def preset(name, **keys):
    data = {"image_size": 224, "in_chans": 3, "num_classes": 10}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.merge(
            {"data": data}, compose(f"model/{name}"), {"model": {"pretrained": "published", **keys}}
        ).model


def test_the_published_presets_are_the_papers():
    assert {"vit_b16", "vit_s16", "vit_l16", "deit_b16", "deit3_b16", "dinov3_b16", "vit_b14_registers"} <= set(PRESETS)


@pytest.mark.filterwarnings("ignore:In 'model/")
@pytest.mark.parametrize("name", mostly_slow(PRESETS, quick=4))
def test_timm_has_them_and_they_fit_but_for_the_head(name, monkeypatch):
    """In one layer of random weights, since some have 600 million."""
    node = preset(name, depth=1)
    kind, _, weights = find_weights(node).partition(":")
    assert kind == "timm"
    assert timm.get_pretrained_cfg(weights).has_weights
    create = timm.create_model
    monkeypatch.setattr("timm.create_model", lambda name, pretrained, **more: create(name, depth=1))
    monkeypatch.setattr("vitlab.weights.by_timm.find_file", lambda config: "file")
    report = load_pretrained(build_model(node), node)
    assert len(report.entries) > 10
    wrong = [entry for entry in report.entries if entry.status not in ("copied", "resized")]
    assert [entry for entry in wrong if not entry.tensor.startswith("head")] == []


def test_without_timm_the_weights_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(CheckpointError, match="the weights timm:vit_base_patch16_224 need timm: pip install timm"):
        load_config("vit_base_patch16_224")
