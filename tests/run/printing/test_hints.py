"""What is told at the start of a choice that costs much, and of images in two splits."""

from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf
from pictures import in_memory, noise, split_of

from vitlab.config.in_process import compose
from vitlab.data import DigitLines
from vitlab.data.duplicates import Overlap
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass, Texts
from vitlab.run.printing import hints
from vitlab.run.printing.hints import (
    FEW,
    MOST_GROUPS,
    PHOTOGRAPHS,
    advise_class_names,
    advise_few_images,
    advise_weights,
    print_hints,
    print_overlap,
    sentence,
)

# -- of the model and its weights


def learning(image_size=32, **model):
    own = {"pretrained": None, "initialization": "normal", "position": "learned_1d", "published": None}
    return OmegaConf.create({"model": own | model, "data": {"image_size": image_size}})


def told(lines):
    return [word for line in lines for word in ("xavier", "vit_b16", "timm:a") if word in line]


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        (learning(), ["xavier"]),
        (learning(initialization="xavier"), []),
        (learning(position="sincos_2d"), []),
        (learning(pretrained="file.pth"), []),
        (learning(position="learned_rotary", image_size=PHOTOGRAPHS), ["xavier", "vit_b16"]),
        (learning(position="rotary", image_size=PHOTOGRAPHS), ["vit_b16"]),
        (learning(position="rotary", image_size=PHOTOGRAPHS - 1), []),
        (learning(position="rotary", image_size=PHOTOGRAPHS, published="timm:a"), ["timm:a"]),
    ],
)
def test_a_transformer_that_learns_from_few_images_is_helped(cfg, words):
    assert told(advise_few_images(cfg, FEW - 1)) == words
    assert advise_few_images(cfg, FEW) == []


def test_classes_that_differ_only_in_case_or_spaces_are_named():
    assert advise_class_names(["cat", "dog", "a"]) == []
    (line,) = advise_class_names(["Cat ", "cat", "dog"])
    assert line.startswith("the classes 'Cat ' and 'cat' differ only in case or spaces")


def test_another_kind_of_model_is_left_alone():
    assert advise_few_images(OmegaConf.create({"model": {"name": "resnet18"}, "data": {"image_size": 224}}), 10) == []


def test_a_hint_names_the_published_weights_of_a_preset():
    cfg = compose("train", ["model=vit_s16", "data=synthetic", "data.image_size=224"])
    assert "model.pretrained=published loads timm:vit_small_patch16_224" in advise_few_images(cfg, 500)[0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, None),
        ({"mean": [0.50001, 0.5, 0.5]}, None),
        ({"image_size": 96}, "'data.image_size=224'"),
        ({"mean": [0.4, 0.5, 0.5]}, "'data.mean=[0.5,0.5,0.5]'"),
        ({"in_chans": 1, "mean": [0.1], "std": [0.1], "image_size": 96}, "'data.image_size=224'"),  # of other colours
    ],
)
def test_images_unlike_those_of_the_weights_are_told(monkeypatch, data, words):
    known = {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2], "image_size": 224, "interpolation": "bicubic"}
    monkeypatch.setattr(hints, "find_preprocessing", lambda cfg: known)
    own = {key: known[key] for key in ("mean", "std", "image_size")} | {"in_chans": 3}
    cfg = OmegaConf.create({"model": {"pretrained": "timm:a"}, "data": own | data})
    expected = (
        [] if words is None else [f"timm:a was trained on images with other settings; to use the same, set {words}"]
    )
    assert advise_weights(cfg) == expected


def test_each_hint_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr(hints, "find_preprocessing", lambda cfg: {})
    cfg = OmegaConf.merge(learning(image_size=PHOTOGRAPHS), {"data": {"in_chans": 3}})
    print_hints(cfg, SimpleNamespace(splits={"train": range(10)}, class_names=["a"]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("hint     ") for line in lines)


# -- of images in two splits


NOISE = noise(40, 8, 8, 3)


def test_the_start_names_the_first_images(capsys):
    first, second = NOISE[:20].copy(), NOISE[20:].copy()
    first[7] = first[15] = second[1] = first[2]
    first[18] = second[10]
    print_overlap({"train": split_of(in_memory(first)), "test": split_of(in_memory(second))})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("overlap  WARNING: images are in two splits (2 of test are in train)")
    assert lines[1].endswith(
        "train: noise image 2 = train: noise image 7 = train: noise image 15 = test: noise image 1"
    )
    assert len(lines) == 3


def test_of_many_images_three_groups_are_named_and_four_images_of_each(capsys):
    print_overlap({name: split_of(in_memory(NOISE[:10].repeat(3, axis=0))) for name in ("train", "test")})
    _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == MOST_GROUPS
    assert all(line.endswith(f" = test: noise image {3 * k} = 2 more") for k, line in enumerate(lines))


def test_images_that_are_composed_anew_are_not_compared(capsys):
    pools = DigitLines(num_lines=3, num_evaluated=2, min_length=1, max_length=2, height=16).open()
    print_overlap({name: split_of(pool) for name, pool in pools.items()})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("targets", "surveyed"), [(OneClass(np.zeros(40, int)), True), (Texts(["a"] * 40), False)])
def test_a_survey_is_named_for_data_that_it_takes(monkeypatch, capsys, targets, surveyed):
    found = Overlap([], 0, "many files")
    assert "survey" in sentence(found, surveyed=True)
    assert sentence(found, surveyed=False) == "not checked: many files"
    monkeypatch.setattr(hints, "overlap", lambda splits: found)
    print_overlap({"train": split_of(ArrayPool(NOISE, targets, "noise"))})
    assert ("survey" in capsys.readouterr().out) is surveyed
