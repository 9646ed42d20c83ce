"""The datamodule divides, checks and finishes what sources give; a stand-in plays the trainer."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import vit_options
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from stand_in import datamodule_of, stand_in
from torchvision.transforms import v2

from vitlab.data import (
    CenterCrop,
    Digits,
    Folder,
    Mixing,
    ProgressiveResolution,
    ShiftedCrop,
    Synthetic,
    SyntheticMultilabel,
    TokenBudget,
    WholeImage,
)
from vitlab.data.batches.batch import RawBatch, UnreadableImage
from vitlab.data.batches.batch_size import divide_batch
from vitlab.data.order.sampler import Key
from vitlab.data.pools.pool import ArrayPool, Pool
from vitlab.data.targets import OneClass, SeveralClasses
from vitlab.errors import ConfigError, DataError
from vitlab.models import VisionTransformer


def waves(**changes):
    settings = {"num_samples": 200, "num_classes": 4, "in_chans": 1, "image_size": 8, "noise": 0.1}
    return Synthetic(**settings | changes)


def arrays(**sizes):
    """A source with a pool of gray images for each split that is named."""
    random = np.random.RandomState(0)
    pools = {
        split: ArrayPool(random.randint(0, 256, (n, 8, 8), dtype=np.uint8), OneClass(np.arange(n) % 4), split)
        for split, n in sizes.items()
    }
    return SimpleNamespace(class_names=list("abcd"), in_chans=1, prepare=lambda: None, open=lambda: pools)


def folder(root):
    splits = {"train": "train", "val": "val", "test": "test"}
    return Folder(root=str(root), splits=splits, index_root=None, allow_outside=False)


WHOLE = WholeImage(image_size=8, interpolation="bilinear")
SHIFTED = ShiftedCrop(image_size=8, padding=2, flip_rate=0.5, interpolation="bilinear")


def budget(**changes):
    settings = {"patch_size": 4, "max_tokens": 4, "enlarge": False, "flip_rate": 0.0, "interpolation": "bilinear"}
    return TokenBudget(**settings | changes)


MIXING = Mixing(rate=1.0, cutmix_rate=0.0, mixup_alpha=1.0, cutmix_alpha=1.0)


def datamodule(source=None, trainer=None, **changes):
    settings = {
        "image_size": 8,
        "image_mode": None,
        "in_chans": 1,
        "num_classes": 4,
        "mean": [0.5],
        "std": [0.25],
        "train_crop": WHOLE,
        "eval_crop": WHOLE,
        "train_transform": None,
        "resolution": None,
        "cache": "none",
        "cache_root": "no such folder",
        "cache_size": 8,
        "val_fraction": 0.1,
        "test_fraction": 0.2,
        "labels_per_class": None,
        "class_balance": 0.0,
        "patch_size": 4,
        "global_batch_size": 32,
        "device_batch_size": None,
        "repeats": 1,
        "shuffle_window": None,
        "num_workers": 0,
        "prefetch_batches": None,
        "stall_timeout": 0,
        "on_bad_image": "error",
        "seed": 0,
    }
    module = datamodule_of(source=source or waves(), **settings | changes)
    module.trainer = trainer or stand_in()
    return module


def ready(*arguments, **options):
    module = datamodule(*arguments, **options)
    module.setup()
    return module


# -- sizes


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
def test_a_global_batch_is_devices_times_micro_batches_times_images(world_size, accumulation, size):
    global_batch_size = world_size * accumulation * size
    assert divide_batch(global_batch_size, size, world_size) == (size, accumulation)
    assert divide_batch(global_batch_size, None, world_size) == (accumulation * size, 1)


@pytest.mark.parametrize(
    ("global_batch_size", "device_batch_size", "world_size", "words"),
    [
        (64, None, 3, "global_batch_size 64 is not a multiple of the 3 devices"),
        (64, 48, 1, "data.device_batch_size 48"),
        (64, 32, 4, "data.device_batch_size 32"),
        (64, 0, 1, "data.device_batch_size"),
        (64, -8, 1, "data.device_batch_size"),
        (0, None, 1, "global_batch_size"),
        (-4, None, 1, "global_batch_size"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(global_batch_size, device_batch_size, world_size, words):
    with pytest.raises(ConfigError, match=words):
        divide_batch(global_batch_size, device_batch_size, world_size)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"in_chans": 3, "mean": [0] * 3, "std": [1] * 3},
            r"data\.in_chans is 3.*1 channel\(s\); set data\.in_chans=1",
        ),
        ({"image_mode": "RGB"}, r"data\.in_chans is 1.*3 channel\(s\); set data\.in_chans=3"),
        ({"image_mode": "RBG"}, r"data\.images\.mode 'RBG'.*L, RGB or null"),
        ({"num_classes": 3}, r"data\.num_classes is 3.*data\.num_classes=4"),
        ({"on_bad_image": "ignore"}, r"data\.loading\.on_bad_image 'ignore'.*error, skip"),
        ({"global_batch_size": 141}, "global_batch_size 141 .*140 images"),
        ({"train_transform": v2.Pad(1)}, r"train crop and transform .*10x10, but data\.image_size is 8"),
        ({"train_crop": WHOLE.resize(9)}, r"train crop and transform .*9x9, but data\.image_size is 8"),
        ({"eval_crop": WHOLE.resize(6)}, r"val crop and transform .*6x6, but data\.image_size is 8"),
        ({"cache": "ram"}, r"data\.cache\.kind 'ram' is not one of: none, encoded, decoded, device"),
        ({"train_crop": budget(patch_size=2)}, r"crop\.train\.patch_size is 2, but the model's patch_size is 4"),
        ({"eval_crop": budget(patch_size=2)}, r"crop\.eval\.patch_size is 2, but the model's patch_size is 4"),
        ({"train_crop": budget(), "mixing": MIXING}, "different sizes cannot be mixed; set mixing=none"),
        (
            {"class_balance": 0.5, "shuffle_window": 2},
            r"data\.order\.class_balance 0.5 .*data\.order\.shuffle_window 2",
        ),
        ({"labels_per_class": 36}, r"data\.split\.labels_per_class is 36, and '0 degrees' has 35 training image"),
        ({"labels_per_class": 7}, "global_batch_size 32 .*28 images"),
        ({"val_fraction": 0.9}, r"data\.split\.val_fraction"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_value_is_refused_in_a_sentence_with_the_right_one(changes, words):
    with pytest.raises(ConfigError, match=words):
        ready(**changes)


def test_steps_are_counted_from_the_training_split():
    module = ready(device_batch_size=8)
    assert module.steps_per_epoch == 4
    for limit, steps in ((1.0, 4), (0.5, 2), (5, 2), (100, 4)):
        module.trainer = stand_in(accumulate_grad_batches=4, limit_train_batches=limit)
        assert module.count_steps_per_epoch() == steps


# -- splits


def test_missing_splits_are_carved_from_the_training_pool():
    splits = ready(arrays(train=200)).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 140, "val": 20, "test": 40}
    names = [split.name(i) for split in splits.values() for i in range(len(split))]
    assert sorted(names) == sorted(f"train image {i}" for i in range(200))


def test_a_split_that_the_source_brings_is_taken_whole():
    splits = ready(arrays(train=200, test=30)).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 180, "val": 20, "test": 30}
    assert [splits["test"].name(i) for i in range(30)] == [f"test image {i}" for i in range(30)]
    splits = ready(arrays(train=200, val=9, test=30)).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 200, "val": 9, "test": 30}


def test_the_seed_of_a_run_does_not_change_its_splits():
    first, second = (ready(arrays(train=200), seed=seed).splits for seed in (0, 1))
    assert all(np.array_equal(first[name].indices, second[name].indices) for name in first)


@pytest.mark.parametrize("split", ["val", "test"])
def test_an_empty_split_is_refused(split):
    with pytest.raises(DataError, match=rf"{split} split holds no image; set data\.split\.{split}_fraction=0\.05"):
        ready(**{f"{split}_fraction": 0.0})


def test_only_training_uses_the_training_crop():
    module = ready(train_crop=SHIFTED)
    assert any((module.splits["train"][0, i].image[:, :, 0] == 0).all() for i in range(20))
    for split in ("val", "test", "train"):
        evaluated = module.get_evaluation_split(split)
        pixels = [evaluated.pool.load(int(i))[:, :, 0] for i in evaluated.indices]
        images = [evaluated[epoch, i].image[0].numpy() for epoch in (0, 1) for i in range(len(evaluated))]
        assert np.array_equal(images, pixels + pixels)


def test_only_training_uses_the_training_transform():
    module = ready(train_transform=v2.RandomErasing(p=1.0, value=255.0))
    loaders = {"train": module.train_dataloader(), "val": module.val_dataloader()}
    loaders["train again"] = module.evaluation_loader("train")
    erased = {
        name: any((image == 255).sum() > 2 for b in loader for image in b.view) for name, loader in loaders.items()
    }
    assert erased == {"train": True, "val": False, "train again": False}


def test_a_second_setup_does_nothing():
    module = ready()
    splits = dict(module.splits)
    module.setup("test")
    assert all(module.splits[name] is splits[name] for name in splits)


@pytest.mark.parametrize("kind", ["digits", "folder", "synthetic"])
def test_every_split_reaches_spawned_workers(kind, image_tree):
    source, options = {
        "digits": (Digits(), {"num_classes": 10}),
        "folder": (folder(image_tree), {"num_classes": 2, "global_batch_size": 4}),
        "synthetic": (waves(), {}),
    }[kind]
    for split in ready(source, train_crop=SHIFTED, train_transform=v2.ColorJitter(0.5), **options).splits.values():
        copy = pickle.loads(pickle.dumps(split))
        assert torch.equal(copy[3, 0].image, split[3, 0].image)
        assert copy.targets.tolist() == split.targets.tolist()


# -- fingerprint


@pytest.fixture
def image_tree(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for i in range(10):
            pixels = np.random.RandomState(i).randint(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "train" / name / f"{i}.png")
    return tmp_path


def test_the_fingerprint_changes_with_the_files(image_tree):
    def fingerprint():
        return ready(folder(image_tree), num_classes=2, global_batch_size=4).fingerprint

    seen = [fingerprint()]
    assert fingerprint() == seen[0]
    cats = image_tree / "train" / "cat"
    Image.new("L", (8, 8)).save(cats / "0.png")  # another size in bytes
    seen.append(fingerprint())
    (cats / "1.png").rename(cats / "99.png")
    seen.append(fingerprint())
    (cats / "99.png").rename(image_tree / "train" / "dog" / "99.png")
    seen.append(fingerprint())
    (cats / "2.png").unlink()
    seen.append(fingerprint())
    assert len(set(seen)) == len(seen)


def test_the_fingerprint_changes_with_a_pixel_or_a_label():
    seen = set()
    for change in (None, "pixels", "targets"):
        pool = arrays(train=100).open()["train"]
        if change:
            array = pool.pixels if change == "pixels" else pool.targets.values
            array.flat[5] = 1 - array.flat[5] % 2
            pool = ArrayPool(pool.pixels, pool.targets, "train")
        seen.add(pool.fingerprint)
    assert len(seen) == 3


# -- batches


def test_a_batch_arrives_as_uint8_images_and_leaves_as_normalised_patches():
    module = ready()
    batch = next(iter(module.train_dataloader()))
    assert (batch.view.dtype, batch.view.shape) == (torch.uint8, (32, 1, 8, 8))
    done = module.on_after_batch_transfer(module.on_before_batch_transfer(batch, 0), 0)
    assert (done.view.inputs.shape, done.view.grid) == ((32, 4, 16), (2, 2))
    expected = (batch.view[:, :, :4, :4].flatten(1) / 255 - 0.5) / 0.25
    torch.testing.assert_close(done.view.inputs[:, 0], expected)
    assert torch.equal(done.target, batch.target)


def test_a_model_that_wants_pixels_gets_images():
    module = ready(patch_size=None)
    done = module.on_after_batch_transfer(next(iter(module.train_dataloader())), 0)
    assert (done.view.inputs.shape, done.view.grid) == ((32, 1, 8, 8), None)


def test_training_is_mixed_as_a_function_of_seed_step_micro_batch_and_rank():
    batch = next(iter(ready().train_dataloader()))

    def mixed(seed=0, batch_idx=-1, **trainer):
        loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_idx=batch_idx))
        module = ready(trainer=stand_in(accumulate_grad_batches=4, fit_loop=loop, **trainer), mixing=MIXING, seed=seed)
        return module.on_after_batch_transfer(batch, 0)

    assert mixed().target.shape == (32, 4)
    assert torch.equal(mixed().view.inputs, mixed().view.inputs)
    assert torch.equal(mixed().view.inputs, mixed(batch_idx=3).view.inputs)  # the first micro-batch of a step, too
    for other in (mixed(seed=1), mixed(global_step=1), mixed(batch_idx=0), mixed(global_rank=1)):
        assert not torch.equal(mixed().view.inputs, other.view.inputs)
    assert torch.equal(mixed(training=False, validating=True).target, batch.target)


def test_the_position_in_training_is_the_optimizer_step():
    module = ready(device_batch_size=16)

    def batches(step):
        module.trainer = stand_in(global_step=step)
        return [batch.index.tolist() for batch in module.train_dataloader()]

    first = batches(0)
    assert len(first) == 8
    assert batches(1)[:6] == first[2:]
    assert batches(4) != first  # another epoch


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_evaluation_covers_a_split_over_all_ranks(world_size):
    module = ready()
    seen = []
    for rank in range(world_size):
        module.trainer = stand_in(world_size=world_size, global_rank=rank)
        seen += [index for batch in module.test_dataloader() for index in batch.index.tolist()]
    assert sorted(seen) == list(range(40))
    module.test_split = "val"
    assert len(module.test_dataloader().dataset) == 20


# -- files that cannot be read


def bad_batch(num_good):
    images = torch.zeros(num_good, 1, 8, 8, dtype=torch.uint8)
    return RawBatch(
        (images,),
        torch.zeros(num_good, dtype=torch.long),
        torch.arange(num_good),
        unreadable=(UnreadableImage("a.png", "torn", 3),),
    )


def test_a_bad_image_ends_the_run_in_a_sentence_with_the_way_out():
    with pytest.raises(DataError, match=r"cannot read a\.png: torn; .*data\.loading\.on_bad_image=skip"):
        ready().on_before_batch_transfer(bad_batch(3), 0)


@pytest.mark.parametrize(
    ("state", "split"),
    [
        ({"training": True}, "train"),
        ({"training": False, "validating": True}, "val"),
        ({"training": False, "sanity_checking": True}, "val"),
        ({"training": False}, "test"),
    ],
    ids=["training", "validation", "sanity", "test"],
)
def test_a_skipped_image_is_counted_once_in_its_split(state, split):
    module = ready(on_bad_image="skip", trainer=stand_in(**state))
    for _ in range(2):
        assert len(module.on_before_batch_transfer(bad_batch(3), 0).target) == 3
    assert {name: len(skipped) for name, skipped in module.skipped.items() if skipped} == {split: 1}


def test_a_good_batch_skips_nothing():
    module = ready(on_bad_image="skip")
    module.on_before_batch_transfer(bad_batch(3)._replace(unreadable=()), 0)
    assert not any(module.skipped.values())


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_split_of_unreadable_images_is_refused(image_tree, split):
    for name in ("cat", "dog"):
        (image_tree / "val" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(image_tree / "val" / name / "0.png")
    for path in (image_tree / split).rglob("*.png"):
        path.write_bytes(b"torn")
    with pytest.raises(
        DataError, match=rf"no image of the {split} split can be read, the first is .*/{split}/.*\d\.png: "
    ):
        ready(folder(image_tree), num_classes=2, global_batch_size=4, on_bad_image="skip")


# -- images of different sizes


class Scattered(Pool):
    """Noise of many sizes and shapes, a few of them unreadable."""

    def __init__(self, n, torn=()):
        super().__init__(OneClass(np.arange(n) % 4), "scattered")
        self.torn = torn

    def load(self, i):
        if i in self.torn:
            raise OSError("torn")
        random = np.random.RandomState(i)
        return random.randint(0, 256, (*random.randint(3, 40, 2), 3), dtype=np.uint8)

    def name(self, i):
        return f"scattered {i}"


def scattered(torn=(), **changes):
    """Training with flips, evaluation without."""
    pools = {"train": Scattered(60), "val": Scattered(21, torn), "test": Scattered(13)}
    source = SimpleNamespace(class_names=list("abcd"), in_chans=3, prepare=lambda: None, open=lambda: pools)
    crops = {"train_crop": budget(max_tokens=20, flip_rate=0.5), "eval_crop": budget(max_tokens=20)}
    colours = {"in_chans": 3, "mean": [0.3, 0.5, 0.6], "std": [0.2, 0.25, 0.3]}
    return ready(source, global_batch_size=6, **crops | colours | changes)


def finished(module, batch):
    return module.on_after_batch_transfer(module.on_before_batch_transfer(batch, 0), 0)


@pytest.mark.parametrize("split", ["train", "val"])
def test_images_of_different_sizes_are_finished_as_each_is_alone(split):
    module = scattered()
    loader = module.train_dataloader() if split == "train" else module.val_dataloader()
    if split == "val":
        module.trainer = stand_in(training=False, validating=True)
    images = {index: module.splits[split][0, index].image for index in range(len(module.splits[split]))}
    for batch in loader:
        done, grid = finished(module, batch), batch.view.grid
        assert batch.view.inputs.dtype == torch.uint8
        assert done.view.grid is grid
        assert done.view.inputs.shape == (len(batch.target), max(h * w for h, w in grid.grids), 48)
        assert grid.mask.sum(dim=1).tolist() == [h * w for h, w in grid.grids]
        assert all(h * w <= 20 for h, w in grid.grids)
        for k, index in enumerate(batch.index.tolist()):
            alone, shape = module.preprocessing.cut(module.preprocessing.normalize(images[index][None]))
            assert shape == grid.grids[k]
            assert torch.equal(done.view.inputs[k, grid.mask[k]], alone[0])
            assert grid.coordinates[k, grid.mask[k]].tolist() == [
                [y, x] for y in range(shape[0]) for x in range(shape[1])
            ]


def test_a_model_sees_each_image_of_a_mixed_batch_as_alone():
    module, model = scattered(), VisionTransformer(**vit_options(image_size=16, in_chans=3, num_classes=4)).eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    split = module.get_evaluation_split("val")
    batch = finished(module, split.__getitems__([Key(0, index) for index in range(len(split))]))
    logits = model(*batch.view.arguments())
    for index in range(len(split)):
        patches, grid = module.preprocessing.cut(module.preprocessing.normalize(split[0, index].image[None]))
        torch.testing.assert_close(model(patches, grid)[0], logits[index], atol=1e-5, rtol=0)
    assert logits.std(dim=0).min() > 1e-3


@pytest.mark.parametrize("world_size", [1, 2])
def test_evaluation_of_different_sizes_counts_every_image_once(world_size):
    module, seen = scattered(torn=(4, 20), on_bad_image="skip"), []
    for rank in range(world_size):
        state = {"training": False, "validating": True, "world_size": world_size, "global_rank": rank}
        module.trainer = stand_in(**state)
        for batch in module.val_dataloader():
            seen += finished(module, batch).index.tolist()
    assert sorted(seen) == [index for index in range(21) if index not in (4, 20)]
    assert module.skipped["val"] == {4: "scattered 4: torn", 20: "scattered 20: torn"}


# -- images of a size that changes


def test_the_size_of_training_images_follows_the_steps():
    resolution = ProgressiveResolution(image_size=8, patch_size=2, scales=[0.5, 0.75], until=[0.25, 0.5])
    module = ready(
        resolution=resolution, patch_size=2, eval_crop=CenterCrop(image_size=8, resize_size=8, interpolation="bilinear")
    )
    module.num_steps = 8
    sizes = []
    for step in (0, 4):
        module.trainer = stand_in(global_step=step)
        for batch in module.train_dataloader():
            done = finished(module, batch)
            sizes.append(batch.view.shape[-1])
            assert done.view.grid == (sizes[-1] // 2, sizes[-1] // 2)
    assert sizes == [4, 4, 6, 6, 8, 8, 8, 8]
    assert {batch.view.shape[-1] for batch in module.val_dataloader()} == {8}


def test_repeats_take_an_image_several_times_each_differently():
    module = ready(train_crop=SHIFTED, repeats=4)
    batches = list(module.train_dataloader())
    assert len(batches) == module.steps_per_epoch
    views = torch.stack([batch.index.view(4, -1) for batch in batches])  # a step's first views, its second ones …
    assert (views == views[:, :1]).all()
    assert len(set(views[:, 0].flatten().tolist())) == views[:, 0].numel()
    rows = torch.cat([batch.view.view(4, -1, *batch.view.shape[1:]) for batch in batches], dim=1).flatten(2)
    assert np.mean([len(set(map(tuple, rows[:, i].tolist()))) for i in range(rows.shape[1])]) > 3.5


def test_a_window_of_shards_wants_shards():
    with pytest.raises(ConfigError, match=r"data\.order\.shuffle_window counts shards"):
        ready(shuffle_window=4)


def test_two_channels_are_resized_by_torch_or_not_at_all():
    crop = WholeImage(image_size=8, interpolation="lanczos")
    options = {"in_chans": 2, "mean": [0, 0], "std": [1, 1], "eval_crop": crop}
    with pytest.raises(ConfigError, match=r"crop\.eval\.interpolation of 2 channels is one of: bilinear, bicubic"):
        ready(waves(in_chans=2), **options)


def test_a_file_that_stands_twice_is_skipped_twice():
    module = ready(on_bad_image="skip", trainer=stand_in(training=False, validating=True))
    twice = tuple(UnreadableImage("a.png", "torn", place) for place in (2, 5))
    module.on_before_batch_transfer(bad_batch(3)._replace(unreadable=twice), 0)
    assert module.skipped["val"] == {2: "a.png: torn", 5: "a.png: torn"}


# -- several classes an image


def many_waves(**changes):
    settings = {"num_samples": 200, "num_classes": 4, "in_chans": 1, "image_size": 8, "noise": 0.1}
    return SyntheticMultilabel(**settings | changes)


@pytest.mark.parametrize("cache", ["none", "decoded", "encoded", "device"])
def test_batches_tell_every_class_of_an_image(tmp_path, cache):
    module = ready(many_waves(), cache=cache, cache_root=str(tmp_path))
    assert isinstance(module.targets, SeveralClasses)
    hot = many_waves().open()["train"].targets.values
    for loader, split in ((module.train_dataloader(), "train"), (module.val_dataloader(), "val")):
        batch = next(iter(loader))
        assert batch.target.dtype == torch.float32
        expected = hot[module.splits[split].indices[batch.index.numpy()]]
        assert np.array_equal(batch.target.numpy(), expected)
    assert module.class_counts().tolist() == hot[module.splits["train"].indices].sum(axis=0).tolist()
    assert module.class_shares().tolist() == module.class_counts().tolist()


def test_several_classes_are_mixed():
    module = ready(many_waves(), mixing=MIXING)
    batch = next(iter(module.train_dataloader()))
    finished = module.on_after_batch_transfer(batch, 0)
    assert finished.target.shape == (32, 4)
    share = finished.target[0, batch.target[0].bool() & ~batch.target[-1].bool()]
    assert ((finished.target > 0) & (finished.target < 1)).any()
    assert share.unique().numel() <= 1
    sums, neighbours = batch.target.sum(), finished.target.sum()
    torch.testing.assert_close(sums, neighbours)  # of all rows: what one loses, the next one gets


def test_several_classes_are_no_matter_of_balance_and_few_labels():
    with pytest.raises(ConfigError, match=r"data\.order\.class_balance 0.5 needs images with one class each"):
        ready(many_waves(), class_balance=0.5)
    with pytest.raises(ConfigError, match=r"data\.split\.labels_per_class needs images with one class each"):
        ready(many_waves(), labels_per_class=2)


def test_splits_of_different_kinds_are_refused():
    pools = arrays(train=60, val=30).open()
    pools["val"].targets = SeveralClasses(np.eye(4, dtype=np.uint8)[pools["val"].targets.values])
    source = SimpleNamespace(class_names=list("abcd"), in_chans=1, prepare=lambda: None, open=lambda: pools)
    with pytest.raises(DataError, match=r"train has images with one class each; val has images that may have several"):
        ready(source)
    pools["train"].targets = SeveralClasses(np.eye(5, dtype=np.uint8)[pools["train"].targets.values])
    with pytest.raises(DataError, match=r"targets of train are \(60, 5\), and there are 4 classes; give one column"):
        ready(source)


# -- few labels, balanced classes


def test_few_labels_leave_evaluation_whole():
    whole, few = ready(), ready(labels_per_class=9)
    assert isinstance(few.targets, OneClass)
    assert few.class_counts().tolist() == [9] * 4
    assert np.isin(few.splits["train"].indices, whole.splits["train"].indices).all()
    for split in ("val", "test"):
        assert np.array_equal(few.splits[split].indices, whole.splits[split].indices)
    assert few.fingerprint == whole.fingerprint
    assert few.steps_per_epoch == 1
    index = next(iter(few.train_dataloader())).index
    assert len(set(index.tolist())) == 32
    assert not np.array_equal(few.splits["train"].indices, ready(labels_per_class=9, seed=1).splits["train"].indices)


def test_an_epoch_of_balanced_classes_holds_their_shares():
    targets = OneClass(np.repeat([0, 1, 2, 3], [100, 50, 30, 20]))
    pool = ArrayPool(np.zeros((200, 8, 8), np.uint8), targets, "train")
    source = SimpleNamespace(class_names=list("abcd"), in_chans=1, prepare=lambda: None, open=lambda: {"train": pool})
    module = ready(source, class_balance=1.0, global_batch_size=35)
    assert module.class_counts().tolist() == [70, 35, 21, 14]
    assert module.class_shares().tolist() == [35] * 4
    batches = list(module.train_dataloader())
    assert len(batches) == module.steps_per_epoch == 4
    assert torch.cat([batch.target for batch in batches]).bincount().tolist() == [35] * 4
