"""Your own images: what a config leaves open is found, printed and kept, or the data is refused in one sentence."""

import json

import numpy as np
import pytest
import yaml
from conftest import evaluated, refuses
from own_images import colour, gray, pngs
from PIL import Image

from vitlab.config.found import fill_in, is_open
from vitlab.data import Digits
from vitlab.data.batches.batch_size import choose_batch_size
from vitlab.data.glance import glance, shrink_images
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import NoTargets
from vitlab.run.building.autoconfig import choose_size, explain_size

SHORT = ["trainer.max_epochs=1", "data.source.index_root=null"]


def found_of(run):
    return yaml.safe_load((run.folder / "config.yaml").read_text())["found"]


def train(cli, root, *words):
    return cli("train", "data=folder", f"data.source.root={root}", *SHORT, *words, folder=f"run-{root.name}")


# -- what is found


def test_digits_in_folders_need_nothing_but_their_place(cli, tmp_path):
    pool, counts = Digits().open()["train"], dict[int, int]()
    for i, k in enumerate(pool.targets.tolist()):
        if counts.get(k, 0) < 40 and k in (2, 3, 4, 5, 7):
            folder = tmp_path / "digits" / f"Ziffer {k} – schön"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pool.load(i)).resize((28, 28)).save(folder / f"{i}.png")
            counts[k] = counts.get(k, 0) + 1
    run = train(cli, tmp_path / "digits")
    assert run.status == 0, run.err
    found = found_of(run)
    assert (found["image_size"], found["in_chans"], found["mode"]) == (28, 1, "L")
    assert (found["num_classes"], found["flip_rate"], found["scale"]) == (5, 0.0, [0.8, 1.0])
    (line,) = [line for line in run.out.splitlines() if line.startswith("found")]
    assert "data.image_size=28 data.in_chans=1 data.images.mode=L" in line
    assert line.endswith("; image_size is the shorter side of the images")
    assert f"global_batch_size={found['global_batch_size']} data.num_classes=5 'data.mean=[" in line
    saved = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert saved["crop"]["train"]["image_size"] == 28
    assert saved["optimizer"]["global_batch_size"] == found["global_batch_size"]


@pytest.mark.ci
@pytest.mark.slow
def test_what_was_found_holds_for_what_comes_after(cli, tmp_path):
    run = train(cli, pngs(tmp_path / "gray", {"a": 20, "b": 20}, gray))
    assert run.status == 0, run.err
    found = found_of(run)
    again = cli("evaluate", f"run={run.folder}")
    assert again.status == 0, again.err
    tested = json.loads((run.folder / "result.json").read_text())["test"]
    scored = evaluated(run.folder)
    assert {name: scored[name] for name in tested} == pytest.approx(tested, abs=1e-5)

    more = cli("train", f"resume={run.folder}", "trainer.max_epochs=2")
    assert more.status == 0, more.err
    assert found_of(run) == found


def test_a_recipes_crop_is_of_the_size_that_was_found(cli, tmp_path):
    pngs(tmp_path / "own", {"a": 40, "b": 40}, colour)
    words = ["recipe=vit_s16_imagenet", "global_batch_size=16", "mixing=none", "schedule.warmup_steps=0"]
    run = train(cli, tmp_path / "own", *words, "data.num_classes=2")
    assert run.status == 0, run.err
    again = cli("evaluate", f"run={run.folder}")
    assert again.status == 0, again.err
    crop = yaml.safe_load((run.folder / "config.yaml").read_text())["crop"]["eval"]
    assert (crop["image_size"], crop["resize_size"]) == (40, 46)


def test_colours_sizes_and_splits_are_found(cli, tmp_path):
    root = tmp_path / "mixed"
    pngs(root / "train", {"a": 30, "b": 30}, colour)
    pngs(root / "valid", {"a": 3, "b": 3}, gray)
    run = train(cli, root)
    assert run.status == 0, run.err
    found = found_of(run)
    assert (found["image_size"], found["in_chans"], found["mode"]) == (40, 3, "RGB")
    assert len(found["mean"]) == 3
    assert found["global_batch_size"] == 4  # of 48: a fifth is the test split
    assert "val 6" in run.out


def test_what_is_given_stands(cli, tmp_path):
    root = pngs(tmp_path / "given", {"a": 20, "b": 20}, colour)
    given = ["data.in_chans=1", "data.image_size=16", "crop.train.flip_rate=0.25", "global_batch_size=7"]
    run = train(cli, root, *given, "data.mean=[0.5]", "data.std=[0.5]")
    assert run.status == 0, run.err
    assert found_of(run) == {"mode": "L", "scale": [0.8, 1.0], "interpolation": "bicubic", "num_classes": 2}


def test_a_survey_needs_no_count_and_advises_the_channels_that_are_there(cli, tmp_path):
    root = pngs(tmp_path / "gray", {"a": 10, "b": 10}, gray)
    options = ["data=folder", f"data.source.root={root}", "data.source.index_root=null", "data.loading.num_workers=0"]
    for stated in ([], ["data.in_chans=3", "data.images.mode=RGB"]):
        run = cli("survey", *options, *stated)
        assert run.status == 0, run.err
        (line,) = [line for line in run.out.splitlines() if line.startswith("normalise")]
        words = [word.strip("'") for word in line.split()[1:]]
        assert words[:2] == ["data.in_chans=1", "data.images.mode=L"]
        assert [word.count(",") for word in words[2:]] == [0, 0]
    again = cli("survey", *options, *words)
    assert again.status == 0, again.err


def test_a_batch_leaves_out_less_than_a_tenth():
    for n in (*range(2, 700), 5040, 10**6):
        size = choose_batch_size(n, None, 1)
        assert 1 <= size <= 64
        assert n % size < n / 10
        assert choose_batch_size(n, None, 4) % 4 == 0
        assert choose_batch_size(n, 8, 2) % 16 == 0


@pytest.mark.parametrize(
    ("side", "patch", "size"),
    [(28, 4, 28), (32, 4, 32), (32, 8, 64), (28, 8, 56), (8, 8, 32), (64, 8, 64), (96, 16, 128), (500, 16, 224)],
)
def test_small_images_are_enlarged_where_patches_are_large(side, patch, size):
    assert choose_size(side, patch) == size


@pytest.mark.parametrize(
    ("side", "size", "patch", "told"),
    [
        (28, 28, 4, "image_size is the shorter side of the images"),
        (28, 56, 8, "the shorter side of 28 pixels becomes 56: 7 patches of 8 in a row"),
        (500, 224, 16, "the shorter side of 500 pixels becomes 224: 14 patches of 16 in a row"),
        (500, 224, None, "the shorter side of 500 pixels becomes 224: between 32 and 224"),
    ],
)
def test_a_size_is_explained(side, size, patch, told):
    assert choose_size(side, patch) == size
    assert explain_size(side, size, patch, known=False) == told


def test_the_size_of_weights_is_explained():
    told = "the shorter side of 28 pixels becomes 224, as for the weights"
    assert explain_size(28, 224, 16, known=True) == told


@pytest.mark.parametrize("command", ["train", "preview"])
def test_a_run_says_why_small_images_are_enlarged(cli, tmp_path, command):
    root = pngs(tmp_path / "small", {"a": 20, "b": 20}, lambda i: gray(i).resize((28, 28)))
    words = ["data=folder", f"data.source.root={root}", "data.source.index_root=null", "model=vit_xs8"]
    run = cli(command, *words, "trainer.max_steps=1")
    assert run.status == 0, run.err
    (line,) = [line for line in run.out.splitlines() if line.startswith("found")]
    assert "data.image_size=56" in line
    assert line.endswith("; the shorter side of 28 pixels becomes 56: 7 patches of 8 in a row")


def test_a_model_of_pixels_takes_images_as_they_are():
    assert [choose_size(side, None) for side in (8, 40, 1000)] == [32, 40, 224]


def test_pixels_in_memory_are_looked_at_as_files_are():
    pixels = np.random.RandomState(0).randint(0, 256, (5, 12, 20, 3), dtype=np.uint8)
    for array, is_gray in ((pixels, False), (pixels[..., :1], True), (pixels[..., 0], True)):
        pool = ArrayPool(array, NoTargets.times(5), "noise")
        assert glance(pool, np.arange(5)) == (12, is_gray)
        small, places = shrink_images(pool, np.array([3, 1]), 4)
        assert small.shape == (2, 4, 4)
        assert places.tolist() == [3, 1]


def test_only_what_is_open_is_filled_in():
    from omegaconf import OmegaConf

    cfg = OmegaConf.create({"data": {"mean": None, "num_classes": 3}, "global_batch_size": "auto", "crop": {}})
    assert [is_open(cfg, key) for key in ("mean", "num_classes", "std", "global_batch_size", "flip_rate")] == [
        *(True, False, False),
        *(True, False),
    ]
    filled = fill_in(cfg, {"mean": [0.5], "num_classes": 9, "global_batch_size": 8})
    assert (filled.data, filled.global_batch_size) == ({"mean": [0.5], "num_classes": 3}, 8)
    assert cfg.data.mean is None


# -- what may lie in folders


def deep(i):
    return Image.fromarray((np.random.RandomState(i).randint(0, 256, (20, 20)) * 257).astype(np.uint16))


def see_through(i):
    return Image.fromarray(np.random.RandomState(i).randint(0, 256, (20, 20, 2), dtype=np.uint8), mode="LA")


@pytest.mark.parametrize("make", [deep, see_through])
def test_gray_of_16_bits_or_with_transparency_is_gray(cli, tmp_path, make):
    run = train(cli, pngs(tmp_path / "gray", {"a": 20, "b": 20}, make))
    assert run.status == 0, run.err
    assert (found_of(run)["in_chans"], found_of(run)["mode"]) == (1, "L")


def test_a_class_with_one_image_is_trained_on(cli, tmp_path):
    run = train(cli, pngs(tmp_path / "rare", {"a": 20, "b": 20, "c": 1}, colour))
    assert run.status == 0, run.err
    assert found_of(run)["num_classes"] == 3


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"only": 12}, ["one class, 'only'"]),
        ({"a": 3, "b": 3}, ["the val split holds no image", "data.split.val_fraction=0.35"]),
        ({"a": 1, "b": 1, "c": 1}, ["3 images are too few for the splits train, val and test"]),
        ({"a": 0}, ["holds no image"]),
    ],
)
def test_what_cannot_be_trained_on_is_told_in_one_sentence(cli, tmp_path, counts, words):
    run = train(cli, pngs(tmp_path / "few", counts, colour))
    assert run.status in (2, 3)
    assert "Traceback" not in run.err
    assert all(word in run.err for word in words), run.err
    assert not (run.folder / "config.yaml").exists()


def test_a_fraction_that_is_named_works(cli, tmp_path):
    run = train(cli, pngs(tmp_path / "few", {"a": 3, "b": 3}, colour), "data.split.val_fraction=0.35")
    assert run.status == 0, run.err


def test_a_folder_of_folders_of_classes_is_pointed_at(cli, tmp_path):
    pngs(tmp_path / "zip" / "images", {"cat": 10, "dog": 10}, colour)
    run = train(cli, tmp_path / "zip")
    assert run.status == 3
    assert f"data.source.root={tmp_path / 'zip' / 'images'}" in run.err


# -- weights that a run starts from


@pytest.mark.slow
def test_images_are_shown_as_the_weights_know_them(cli, tmp_path, digits_run):
    root = pngs(tmp_path / "colour", {"a": 20, "b": 20}, lambda i: colour(i, side=50))
    run = train(cli, root, f"model.pretrained={digits_run}")
    assert run.status == 0, run.err
    found = found_of(run)
    assert (found["image_size"], found["in_chans"], found["mode"], found["interpolation"]) == (32, 1, "L", "bilinear")
    assert (found["mean"], found["std"]) == ([0.3053], [0.3760])
    assert "data.mean=[0.3053]" in run.out
    words = ["data=folder", f"data.source.root={root}", *SHORT, f"model.pretrained={digits_run}", "data.image_size=16"]
    given = cli("train", *words, folder="given")
    assert given.status == 0, given.err
    assert yaml.safe_load((tmp_path / "given" / "config.yaml").read_text())["found"].get("image_size") is None


def test_weights_that_are_not_there_are_told_before_any_image_is_read(cli, tmp_path):
    root = pngs(tmp_path / "none", {"a": 5, "b": 5}, colour)
    run = train(cli, root, "model.pretrained=timm:vit_tiny_patch16_224")
    assert run.status == 4
    assert refuses(run, "not in the cache of this machine"), run.err
    assert "measuring" not in run.out


@pytest.mark.slow
def test_what_the_weights_know_otherwise_is_told(cli, digits_run, tmp_path):
    options = ["model.pretrained=" + str(digits_run), "trainer.max_steps=1", "data.mean=[0.5]"]
    run = cli("train", *options, folder="other")
    assert run.status == 0, run.err
    (hint,) = [line for line in run.out.splitlines() if line.startswith("hint")]
    assert "'data.mean=[0.3053]'" in hint
    assert "data.std" not in hint
    assert "hint" not in cli("train", *options[:2], folder="same").out


def test_a_start_that_is_known_to_be_poor_is_told(cli):
    quick = ["trainer.max_steps=1", "global_batch_size=64"]
    poor = cli("train", *quick, "model.initialization=normal", folder="poor")
    assert poor.status == 0, poor.err
    (hint,) = [line for line in poor.out.splitlines() if line.startswith("hint")]
    assert "model.initialization=xavier gained" in hint
    assert "study=initialization" in hint
