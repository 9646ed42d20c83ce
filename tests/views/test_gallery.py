"""Every view can be drawn of every kind of model, and says what it shows."""

import io
from itertools import pairwise

import pytest
import torch
from conftest import mostly_slow, vit_options
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vitlab.models import DistilledVisionTransformer, VisionTransformer
from vitlab.views import OF_IMAGES, VIEWS, ClassProbability, describe_training, gallery, reading_figure
from vitlab.views.mosaic import format_count, pick
from vitlab.views.weight_figures import filters_figure

OF_EVERY = [
    "attention_1",
    "attention_rollout",
    "relevance",
    "attention_distance",
    "position_similarity",
    "embedding_filters",
]


LIKELY = [[ClassProbability(0, "cat", 0.6), ClassProbability(1, "dog", 0.25)]]


def drawn(kind=VisionTransformer, count=1, **changes):
    options = vit_options(**{"image_size": 16} | changes)
    model = kind(**options)
    images = torch.rand(count, options["in_chans"], *model.patch_embed.image_size)
    return dict(gallery(model, images, images, [f"picture {number}" for number in range(count)], VIEWS, LIKELY * count))


def words(figure):
    return " ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "whose"),
    mostly_slow(
        [
            ({}, "attention of the class token"),
            ({"image_size": [8, 16], "in_chans": 3, "num_registers": 2}, "class token"),
            ({"class_token": False, "pool": "mean", "in_chans": 2}, "the patches, on average"),
            ({"class_token": False, "pool": "map", "in_chans": 5, "position": "sincos_2d"}, "that of the pooling"),
            ({"position": "relative", "depth": 1}, "1 layer, 2 heads"),
            ({"position": "rotary", "image_size": [16, 4]}, "class token"),
            ({"patch_size": None, "stem_channels": [8, 8], "position": "learned_2d"}, "class token"),
            ({"depth": 14, "embed_dim": 16, "num_heads": 16}, "12 of 14 layers, 12 of 16 heads"),
            ({"embed_dim": 2, "num_heads": 1, "image_size": 4}, "1 head"),
        ],
        quick=4,
    ),
    ids=str,
)
def test_all_views_can_be_drawn(changes, whose):
    figures = drawn(**changes)
    assert list(figures) == OF_EVERY
    assert whose in words(figures["attention_1"])
    assert (figures["relevance"] is None) == (changes.get("pool") == "map")
    for figure in figures.values():
        if figure is not None:
            figure.savefig(io.BytesIO(), dpi=20)
    if figures["relevance"]:
        assert "picture 0\ncat 60.0%\ndog 25.0%" in words(figures["relevance"])


def test_a_distilled_model_shows_its_class_token_and_each_image():
    figures = drawn(DistilledVisionTransformer, count=3, depth=1)
    assert list(figures) == ["attention_1", "attention_2", "attention_3", *OF_EVERY[1:]]
    assert "picture 1" in words(figures["attention_2"])
    assert all(f"picture {number}" in words(figures["attention_rollout"]) for number in range(3))
    assert "3 images" in words(figures["attention_distance"])


def test_a_model_without_positions_has_none_to_show():
    figures = drawn(position="none")
    assert [name for name, figure in figures.items() if figure is None] == ["position_similarity"]


def test_a_figure_says_of_which_file_it_is_and_what_the_model_makes_of_it():
    model, image = VisionTransformer(**vit_options(image_size=16)), torch.rand(1, 1, 16, 16)
    title = "photo_with_a_long_name.jpg\nsaid cat 60.0%, dog 25.0%\n" + describe_training(0)
    ((_, figure),) = gallery(model, image, image, [title], ["attention"])
    assert "photo_with_a_long_name.jpg" in words(figure)
    assert "no step of training" in words(figure)
    assert describe_training(1520) == "weights after 1,520 training steps"


def test_views_of_the_weights_want_no_images():
    model = VisionTransformer(**vit_options())
    nothing = torch.empty(0)
    assert [name for name, _ in gallery(model, nothing, nothing, [], ["filters", "position"])] == OF_EVERY[4:]


def test_filters_that_are_all_zero_are_grey():
    model = VisionTransformer(**vit_options(patch_size=None, stem_channels=[4, 4], in_chans=3))
    model.patch_embed.proj[0].weight.data.zero_()
    canvas = filters_figure(model).axes[0].get_images()[0].get_array()
    assert set(canvas.flatten().tolist()) == {0.5, 1.0}  # 1: the white between them


@given(st.integers(1, 60), st.integers(1, 14))
def test_some_of_many_are_picked_evenly(count, most):
    places = pick(count, most)
    assert len(set(places)) == len(places) == min(count, most)
    assert places[0] == 0
    assert most == 1 or places[-1] == count - 1
    steps = {b - a for a, b in pairwise(places)}
    assert max(steps, default=1) - min(steps, default=1) <= 1
    assert format_count(count, most, "head").startswith(str(len(places)))


def test_attention_to_tokens_that_are_dropped_on_the_way_has_no_picture():
    model = VisionTransformer(**vit_options(image_size=16))
    model.blocks[0].register_forward_hook(lambda block, given, tokens: tokens[:, :-2])
    images = torch.rand(1, 1, 16, 16)
    figures = dict(gallery(model, images, images, ["a picture"]))
    assert [name for name, figure in figures.items() if figure is None] == list(OF_IMAGES)
    assert list(figures)[4:] == OF_EVERY[4:]


def test_what_the_rows_of_a_reading_are_stands_within_the_picture():
    looks = torch.full((1, 6, 4, 7, 16), 1 / 16)
    figure = reading_figure(torch.rand(1, 32, 32), (4, 4), looks, ["end"] * 7, "title", "read and written")
    FigureCanvasAgg(figure).draw()
    label = figure.axes[0].yaxis.label
    assert label.get_text() == "read and written"
    assert label.get_window_extent().x0 >= 0
