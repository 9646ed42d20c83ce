"""A model that writes of an image: what the page shows of each token is what the model computes while it writes."""

import pytest
import torch
from browser import open_browser
from test_browser import LOOSE, OVERFLOWING, SHOWN, settle
from test_page import MEAN, STD, read, unpack
from texts import captioner, randomized
from torch import nn

from vitlab.decoding import search
from vitlab.explaining.page import Explained, GivenImage, build_page
from vitlab.explaining.writing import CANDIDATES, Writer
from vitlab.vocabulary import SpecialTokens

SPECIAL = SpecialTokens(begin=1, end=2, padding=0)
VARIANTS = {
    "plain": {"tied": False},
    "no class token, mean": {"encoder": {"pool": "mean", "class_token": False}},
    "rotary": {"encoder": {"position": "rotary", "num_registers": 2}},
    "relative": {"encoder": {"position": "relative"}},
    "unscaled": {"scaled_attention": False},
    "post-norm": {"norm_first": False},
}


def build(size=(8, 12), **changes):
    """A page of two images, of another size than the encoder was made for, and what the model itself wrote."""
    torch.manual_seed(0)
    model = randomized(captioner(**{"tied": False, "norm_first": True} | changes), std=0.5)
    decoding = search(max_length=5, width=1, length_penalty=0.6)
    grid = (size[0] // 4, size[1] // 4)

    def write(image, grid, **options):
        with torch.no_grad():
            return decoding(model.begin_text(image, grid), SPECIAL, **options)

    def name(token):
        return ["padding", "begin", "end"][token] if token < 3 else chr(ord("a") + token) + "<"

    writer = Writer(
        model,
        lambda image, grid: (text := write(image, grid)).tokens[text.present],
        SPECIAL.begin,
        name,
        lambda tokens: "".join(name(token) for token in tokens if token > 2),
    )
    images = []
    for number in range(2):
        pixels = torch.randint(0, 256, (1, *size), dtype=torch.uint8)
        images.append(GivenImage(f"{number}.png", pixels, ((pixels / 255 - MEAN[0]) / STD[0])[None]))
    given = Explained("reader", model.encoder, [], nn.Softmax(dim=-1), 1.0, MEAN, STD, writer)
    return build_page(given, images, 3e6), model, [write(one.inputs, grid, with_attention=True) for one in images], name


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=list(VARIANTS))
def test_each_token_is_that_of_the_model(changes):
    page, model, written, name = build(**changes)
    content = read(page)
    assert content["grid"] == [2, 3]
    assert content["facts"]["parameters"] == sum(p.numel() for p in model.parameters())
    for shown, text in zip(content["images"], written, strict=True):
        tokens = text.tokens[text.present].tolist()
        assert shown["written"] == [name(token) for token in tokens]
        assert shown["probability"] == pytest.approx(float(text.log_probs.sum().exp()), rel=1e-4)
        said, error = unpack(shown["arrays"]["said"])
        assert said.shape == (len(tokens), CANDIDATES)
        first = [row.index(name(token)) for row, token in zip(shown["candidates"], tokens, strict=True)]
        assert first == [0] * len(tokens)  # a greedy search takes the likeliest
        torch.testing.assert_close(said[:, 0].float(), text.log_probs[text.present].exp(), atol=error + 1e-5, rtol=0)
        looked, error = unpack(shown["arrays"]["looked"])
        own = text.attention.memory[0].mean(dim=1)[..., model.encoder.num_prefix_tokens :]
        torch.testing.assert_close(looked.float(), own[:, : len(tokens)], atol=error + 1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_shows_each_token_in_a_browser(tmp_path, width):
    page, _, _, _ = build()
    content = read(page)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with open_browser() as browser:
        opened, errors = browser.new_page(viewport={"width": width, "height": 900}), []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        opened.goto((tmp_path / "page.html").as_uri())
        settle(opened)
        for number, shown in enumerate(content["images"]):
            opened.get_by_role("button", name=f"image {number}.png").click()
            settle(opened)
            assert opened.locator("#answer .big").inner_text() == shown["text"]
            said, error = unpack(shown["arrays"]["said"])
            buttons = opened.locator("#writing .written button")
            assert buttons.all_inner_texts() == shown["written"]
            for m in range(len(shown["written"])):
                buttons.nth(m).click()
                settle(opened)
                assert opened.locator("#writing .bars .label").all_inner_texts() == shown["candidates"][m]
                numbers = [float(text.rstrip(" %")) for text in opened.locator("#writing .bars b").all_inner_texts()]
                assert numbers == pytest.approx((100 * said[m]).tolist(), abs=0.06 + 100 * error)
            assert opened.evaluate(LOOSE) == []
            assert opened.evaluate(OVERFLOWING) == [0]
            assert all(one["of"] for one in opened.evaluate(SHOWN))
        assert errors == []
