"""Recipes that a fit tries: each composes, and suits the images."""

import pytest

from vitlab.config.in_process import compose
from vitlab.trials.candidates import Images, list_candidates

FEW = Images(side=8, count=1200, channels=1, same_size=True)
MANY = Images(side=32, count=45_000, channels=3, same_size=True)
PHOTOS = Images(side=375, count=3000, channels=3, same_size=False)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("images", [FEW, MANY, PHOTOS], ids=["few", "many", "photos"])
def test_each_candidate_is_a_recipe_that_composes(images):
    for one in list_candidates(images, []):
        cfg = compose("train", ["data=folder", "data.source.root=there", *one.words])
        assert cfg.data.image_size == one.image_size
        if cfg.data.patch_size is not None:
            assert one.image_size % cfg.data.patch_size == 0


@pytest.mark.slow
@pytest.mark.ci
def test_another_data_set_than_a_folder_may_have_a_transform_already():
    for one in list_candidates(FEW, []):
        assert compose("train", ["data=digits", *one.words]).data.images.train_transform.degrees == 12


def test_names_are_unique():
    for images in (FEW, MANY, PHOTOS):
        names = [one.name for one in list_candidates(images, ["model=vit_ti16", "model.pretrained=there"])]
        assert len(set(names)) == len(names)


def test_small_images_keep_their_size_and_large_ones_are_shrunk():
    assert {one.image_size for one in list_candidates(MANY, [])} == {32}
    assert {one.image_size for one in list_candidates(PHOTOS, [])} == {64, 128}
    assert {one.image_size for one in list_candidates(Images(50, 900, 1, True), [])} == {48}


def test_weights_are_tried_first():
    frozen, tuned, *_ = list_candidates(PHOTOS, ["model=vit_ti16", "model.pretrained=there"])
    found = [
        "data.mean=[0.1,0.2,0.3]",
        "data.std=[1.0,1.0,1.0]",
        "data.in_chans=3",
    ]  # which the weights state themselves
    cfg = compose("train", ["data=folder", "data.source.root=there", *found, *frozen.words])
    assert (cfg.data.mean, cfg.data.std, cfg.data.in_chans) == (None, None, None)
    assert (cfg.optimizer.trained, cfg.model.pretrained) == ("head", "there")
    assert compose("train", ["data=folder", "data.source.root=there", *tuned.words]).optimizer.trained == "all"


def test_images_that_do_not_fit_in_memory_stay_on_disk():
    large = [*list_candidates(Images(375, 1_000_000, 3, False), [])]
    kinds = {word for one in large for word in one.words if word.startswith("data.cache.kind")}
    assert kinds == {"data.cache.kind=decoded"}
