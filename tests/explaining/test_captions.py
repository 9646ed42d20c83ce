"""A model of images and texts is explained as a classifier of captions, with the numbers of its zero-shot answer."""

import pytest
import torch
from conftest import vit_options
from test_page import MEAN, STD, read, unpack
from texts import OPTIONS, randomized

from vitlab.explaining.captions import classify_by_captions
from vitlab.explaining.page import Explained, GivenImage, build_page
from vitlab.models import ImageTextModel, TextEncoder, VisionTransformer
from vitlab.tasks.contrastive import ZeroShot

SHARED = {"patch_size": 4, "text_pool": "end", "text_bias": False, "scale": 10.0, "bias": None}


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("changes", [{}, {"pool": "mean", "class_token": False}, {"representation_dim": 32}], ids=str)
def test_logits_and_probabilities_are_those_of_zero_shot(projected, changes):
    torch.manual_seed(0)
    text = TextEncoder(causal=True, **OPTIONS | {"norm_first": True, "position": "learned_1d"})
    encoder = VisionTransformer(**vit_options(**{"image_size": 16} | changes))
    width = 12 if projected else 32
    model = ImageTextModel(encoder=encoder, text=text, feature_dim=width, project_images=projected, **SHARED)
    model = randomized(model).eval()
    pixels = torch.randint(0, 256, (1, 16, 16), dtype=torch.uint8)
    inputs = ((pixels / 255 - MEAN[0]) / STD[0])[None]
    with torch.no_grad():
        tokens, lengths = torch.tensor([[3, 4, 2], [5, 2, 0], [7, 8, 2]]), torch.tensor([3, 2, 3])
        asked = ZeroShot(model, model.encode_texts(tokens, lengths))
        expected = asked(inputs)
    tower = classify_by_captions(model, asked.classes)
    captions = ["one <b>", "two", "three"]
    given = Explained("run", tower, captions, asked.probabilities, 1.0, MEAN, STD)
    page = build_page(given, [GivenImage("a.png", pixels, inputs)], 3e6)
    (one,) = read(page)["images"]
    order = [captions.index(name) for name in one["classes"]]
    assert order == expected[0].argsort(descending=True).tolist()
    logit, error = unpack(one["arrays"]["logit"])
    torch.testing.assert_close(logit.float(), expected[:, order], atol=error + 1e-5, rtol=0)
    lens, error = unpack(one["arrays"]["lens"])
    torch.testing.assert_close(lens[-1].float(), expected.softmax(dim=1)[0, order], atol=error + 1e-5, rtol=0)
    assert one["arrays"]["evidence"]["shape"] == [2, 16]
    assert "the text tower" in page
    assert "@ self.captions.T" in page
