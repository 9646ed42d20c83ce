"""Batches of a split as evaluation sees them, without a trainer."""

import numpy as np
import pytest
import torch
from conftest import vit_options
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from PIL import Image

from vitlab.config.build import build
from vitlab.config.home import CONF
from vitlab.data.evaluation import evaluation_batches
from vitlab.errors import DataError
from vitlab.models import VisionTransformer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made():
    """made(*overrides): a datamodule of conf/train.yaml, set up."""

    def datamodule(*overrides):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = compose("train", [*overrides, "data.loading.num_workers=0"], return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        found = build(cfg.data, "data")
        found.prepare_data()
        found.setup()
        return found

    return datamodule


@pytest.fixture(scope="module")
def digits(made):
    return made("model=vit_mu4", "data=digits")


def places_of(batches):
    return [batch.index.tolist() for batch in batches]


@pytest.mark.parametrize(("world_size", "batch_size"), [(1, 64), (1, 1000), (3, 7)])
def test_every_sample_comes_once(digits, world_size, batch_size):
    of_ranks = [
        places_of(
            evaluation_batches(digits, "val", batch_size=batch_size, device=CPU, rank=rank, world_size=world_size)
        )
        for rank in range(world_size)
    ]
    assert sorted(place for rank in of_ranks for batch in rank for place in batch) == list(range(180))
    assert max(len(batch) for rank in of_ranks for batch in rank) == min(batch_size, 180)


def test_of_some_places_only_these(digits):
    batches = evaluation_batches(digits, "train", batch_size=2, device=CPU, places=[3, 900, 17])
    assert places_of(batches) == [[3, 900], [17]]


def test_training_images_are_cropped_and_normalised_as_in_evaluation(digits):
    """And not turned and shifted, as the digits are in training."""
    (batch,) = evaluation_batches(digits, "train", batch_size=8, device=CPU, places=range(8))
    again = next(iter(evaluation_batches(digits, "train", batch_size=8, device=CPU)))
    assert torch.equal(batch.view.inputs, again.view.inputs)
    split = digits.get_evaluation_split("train")
    images = torch.stack([split[(0, place)].image for place in range(8)])
    pixels = (images / 255 - digits.preprocessing.mean) / digits.preprocessing.std
    model = VisionTransformer(**vit_options()).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(*batch.view.arguments()), model(pixels))
    assert batch.target.tolist() == split.targets.values[:8].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_images_that_cannot_be_read_are_missing_or_refused(made, tmp_path, workers):
    for k in range(12):
        folder = tmp_path / "images" / "train" / "ab"[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 20 * k, dtype=np.uint8)).save(folder / f"{k:02}.png")
    options = ["data=folder", f"data.source.root={tmp_path / 'images'}", "data.num_classes=2", "data.image_size=8"]
    options += [f"data.source.index_root={tmp_path / 'index'}", "model=vit_mu4", "global_batch_size=2"]
    options += ["data.in_chans=3", "crop=whole", "data.mean=[0,0,0]", "data.std=[1,1,1]"]
    whole = made(*options, "data.loading.on_bad_image=skip")
    victims = [2, 3, 5]  # a whole batch, and one of a batch
    for victim in victims:
        (tmp_path / "images" / whole.splits["train"].name(victim)).write_bytes(b"no picture")
    whole.loading.num_workers = workers
    found = places_of(evaluation_batches(whole, "train", batch_size=2, device=CPU))
    assert found == [[0, 1], [4], *[[place, place + 1] for place in range(6, len(whole.splits["train"]) - 1, 2)]]
    assert whole.skipped == {"train": {}, "val": {}, "test": {}}  # those of the run itself
    strict = made(*options)
    with pytest.raises(DataError, match=r"cannot read .*png.*data.loading.on_bad_image=skip"):
        places_of(evaluation_batches(strict, "train", batch_size=2, device=CPU))
