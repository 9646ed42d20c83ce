"""Names on the hub, from a cache in a folder and without any network."""

import time

import pytest
import timm
import torch
from foreign import distance, huggingface_vit, images, loaded
from safetensors.torch import save_file

from vitlab.errors import CheckpointError

COMMIT = "0" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache; calling it makes the folder of a repository's only commit there."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def add(repository):
        root = tmp_path / f"models--{repository.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text(COMMIT)
        folder = root / "snapshots" / COMMIT
        folder.mkdir(parents=True)
        return folder

    return add


@pytest.fixture(params=["offline", "unreachable"])
def cut_off(request, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", request.param == "offline")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    return request.param


@pytest.mark.parametrize("source", ["timm:vit_tiny_patch16_224", "hf:google/vit-base-patch16-224"])
def test_without_network_or_cache_it_says_so_at_once(source, cache, cut_off):
    started = time.perf_counter()
    with pytest.raises(CheckpointError, match=r"not in the cache .* model.pretrained=") as error:
        loaded(source)
    assert time.perf_counter() - started < 5
    assert "\n" not in str(error.value)


def test_a_cached_hugging_face_name_needs_no_network(cache, cut_off):
    source = huggingface_vit(layer_norm_eps=1e-6)
    source.save_pretrained(cache("someone/vit"))
    assert distance(loaded("hf:someone/vit")[0], source, images()) < 1e-4
    assert loaded(f"hf:someone/vit@{COMMIT}")[1].form == "Hugging Face"


def test_a_cached_timm_name_needs_no_network(cache, cut_off):
    source = timm.create_model("vit_tiny_patch16_224").eval()
    repository = timm.get_pretrained_cfg("vit_tiny_patch16_224").hf_hub_id
    save_file(source.state_dict(), cache(repository) / "model.safetensors")
    sizes = {"image_size": 224, "patch_size": 16, "embed_dim": 192, "depth": 12, "num_heads": 3, "num_classes": 1000}
    model, _ = loaded("timm:vit_tiny_patch16_224", **sizes)
    torch.testing.assert_close(model(images(224)), source(images(224)), atol=1e-4, rtol=0)
    with pytest.raises(CheckpointError, match=r"model.num_heads=3"):
        loaded("timm:vit_tiny_patch16_224", **{**sizes, "num_heads": 2})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timm:vit_of_nobody", "no model"),
        ("timm:vit_tiny_patch16_224.no_such_tag", "no weights"),
        ("timm:vit_base_patch16_18x2_224", "no weights"),
    ],
)
def test_names_that_timm_does_not_know(name, words):
    with pytest.raises(CheckpointError, match=words):
        loaded(name)


def test_every_name_is_looked_for_in_the_cache_before_the_network(cache, cut_off):
    source = huggingface_vit(layer_norm_eps=1e-6)
    folder = cache("someone/old")
    source.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(source.state_dict(), folder / "pytorch_model.bin")
    assert distance(loaded("hf:someone/old")[0], source, images()) < 1e-4


def test_shards_on_the_hub_are_fetched_one_by_one(cache, cut_off):
    source = huggingface_vit(layer_norm_eps=1e-6)
    folder = cache("someone/large")
    source.save_pretrained(folder, max_shard_size="60KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert distance(loaded("hf:someone/large")[0], source, images()) < 1e-4
    shards[-1].unlink()
    with pytest.raises(CheckpointError, match=f"{shards[-1].name} of someone/large is not in the cache"):
        loaded("hf:someone/large")


@pytest.mark.parametrize("name", ["a/b/c", "a b", "/a", "..", "a" * 300])
def test_what_can_be_no_name_on_the_hub_is_refused(name, cache):
    with pytest.raises(CheckpointError, match="is not a name on the Hugging Face hub; give hf:ORG/NAME"):
        loaded(f"hf:{name}")
