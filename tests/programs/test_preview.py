"""python src/preview.py, as a user runs it."""

import numpy as np
import pytest
import torch
from conftest import BARE
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from PIL import Image

from vitlab.config.build import build
from vitlab.config.home import CONF
from vitlab.programs.preview import first_batch

PLAIN = ["model=vit_mu4", "data=digits"]


def pictures(run):
    line = next(line for line in run.out.splitlines() if line.startswith("pictures"))
    return line.removeprefix("pictures").strip().split(", ")


def test_a_batch_and_its_facts_are_shown(cli, tmp_path):
    run = cli("preview", *PLAIN, "augmentation=randaugment", "mixing=mixup", "same=2", "num_images=12", "output=here")
    assert run.status == 0, run.err
    assert pictures(run) == ["here/batch.png", "here/same.png"]
    for path in pictures(run):
        assert np.asarray(Image.open(tmp_path / path).convert("L")).std() > 20
    for fact in ("train 1,258, val 180, test 359", "classes      10", "19 of 64 images", "randaugment, mixing mixup"):
        assert fact in run.out
    assert "WholeImage, 32x32 pixels, 1 channel(s)" in run.out
    assert {path.name for path in tmp_path.iterdir()} == {"here"}  # no folder of Hydra's, no log


def test_images_of_mixed_sizes_are_shown_in_their_own_shape(cli, tmp_path):
    colours = np.random.RandomState(0).randint(0, 256, (12, 3), dtype=np.uint8)
    for k, colour in enumerate(colours):
        folder = tmp_path / "photos" / "train" / "ab"[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((30 + 4 * k, 60, 3), colour)).save(folder / f"{k}.jpg")
    run = cli(
        "preview",
        "data=folder",
        f"data.source.root={tmp_path / 'photos'}",
        f"data.source.index_root={tmp_path / 'index'}",
        "data.num_classes=2",
        "data.split.val_fraction=0.2",
        "data.image_size=32",
        "model=vit_mu4",
        "model.patch_size=8",
        "crop=native",
        "crop.train.max_tokens=20",
        "augmentation=randaugment_erasing",
        "same=1",
        "global_batch_size=4",
    )
    assert run.status == 0, run.err
    assert "TokenBudget, mixed sizes, 3 channel(s)" in run.out
    assert "runs/preview/vit_mu4_folder/" in pictures(run)[0]


def test_the_batch_is_the_one_that_training_starts_with(cli, tmp_path, monkeypatch):
    """Augmented and mixed: the very values."""
    choices = [*PLAIN, "augmentation=trivialaugment", "mixing=mixup_cutmix", "trainer.max_steps=1"]
    seen = []
    from vitlab.tasks import Classification

    step = Classification.training_step
    monkeypatch.setattr(Classification, "training_step", lambda *args: (seen.append(args[1]), step(*args))[1])
    assert cli("train", *choices, *BARE, folder="run").status == 0
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("preview", overrides=choices, return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    augmentation, mixing = (build(cfg[key], key) for key in ("augmentation", "mixing"))
    datamodule = build(cfg.data, "data", augmentation=augmentation, mixing=mixing)
    datamodule.setup()
    batch = first_batch(datamodule, cfg)
    assert torch.equal(batch.view.inputs, seen[0].view.inputs)
    assert torch.equal(batch.target, seen[0].target)


def test_the_size_is_that_of_the_first_step(cli, tmp_path, monkeypatch):
    from vitlab.programs import preview as module

    seen = []
    first_batch = module.first_batch
    monkeypatch.setattr(module, "first_batch", lambda *given: seen.append(first_batch(*given)) or seen[0])
    run = cli("preview", "model=vit_mu4", "resolution=progressive", "output=out")
    assert run.status == 0, run.err
    assert seen[0].view.grid == (4, 4)  # half of 32 pixels, in patches of 4


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["num_images=0"], "num_images 0"),
        (["same=-1"], "same -1"),
        (["same=x"], "same x"),
        (["data.cache.kind=x"], "data.cache.kind"),
    ],
)
def test_refusals(cli, overrides, word):
    run = cli("preview", *PLAIN, *overrides)
    assert run.status == 2
    assert word in run.err
    assert "Traceback" not in run.err


def test_classes_are_counted_as_they_come(cli, tmp_path):
    run = cli(
        "preview",
        *PLAIN,
        "data.order.class_balance=1",
        "data.split.labels_per_class=100",
        "num_images=1",
        "output=here",
    )
    assert run.status == 0, run.err
    assert "classes      10, of 100 training images each, balanced: 100 an epoch" in run.out
    run = cli("preview", *PLAIN, "data.order.class_balance=1", "num_images=1", "output=here", "overwrite=true")
    assert "classes      10, of 122 to 128 training images each, balanced: 125 to 126 an epoch" in run.out
    words = ["model=vit_mu4", "data=synthetic_multilabel", "mixing=mixup", "same=1", "output=here", "overwrite=true"]
    run = cli("preview", *words)
    assert run.status == 0, run.err
    assert "training images each, several an image" in run.out
    assert np.asarray(Image.open(tmp_path / "here" / "same.png").convert("L")).std() > 5
