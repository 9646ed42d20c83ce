"""The page in a browser: what it shows is what the weights give, at three widths, with a keyboard, light and dark."""

import math
import re

import numpy as np
import pytest
from browser import check_access, open_browser
from test_page import NAMES, TEMPERATURE, build, build_model, read, recompute

from vitlab.counting import multiply_accumulates

pytestmark = [pytest.mark.slow, pytest.mark.ci]
SHOWN = """() => [...document.querySelectorAll('.n')].map(one => ({of: one.dataset.of, text: one.textContent,
    bound: (one.previousSibling?.textContent ?? '').slice(-2).trim(),
    percent: (one.nextSibling?.textContent ?? '').startsWith(' %'),
    unit: one.nextElementSibling?.dataset?.unit ?? null}))"""
# digits in a drawing that stand in no number with an origin, and in no label
LOOSE = """() => [...document.querySelectorAll('[data-view]')].flatMap(view => {
    const walker = document.createTreeWalker(view, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) {
        const text = walker.currentNode;
        if (/\\d/.test(text.textContent) && !text.parentElement.closest('.n, .label')) found.push(text.textContent);
    }
    return found;
})"""
OVERFLOWING = """() => [document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll('main *')]
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll'))
    .map(one => one.className)]"""


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """A model, its images, and the file of their page."""
    model = build_model()
    page, images = build(model, count=2)
    path = tmp_path_factory.mktemp("page") / "explained.html"
    path.write_text(page, encoding="utf-8")
    return model, images, read(page), path


@pytest.fixture
def page(browser, explained, request):
    """The page at a width, in a colour scheme, which writes no error to the console."""
    width, scheme = getattr(request, "param", (1600, "light"))
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors, asked = [], []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda one: asked.append(one.url))
    opened.goto(explained[3].as_uri())
    settle(opened)
    yield opened
    assert errors == []
    assert asked == [explained[3].as_uri()]  # nothing else is loaded
    opened.close()


def settle(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


class Expected:
    """What a number should be by its origin, from the weights alone."""

    def __init__(self, model, images, content):
        self.model, self.images, self.content = model, images, content
        self.found = [recompute(model, image.inputs, content["channels"]) for image in images]

    def __call__(self, of):
        kind, *rest = of.split("/")
        if kind == "fact":
            own = {"temperature": TEMPERATURE, "even": 1 / 17, "shown": 10}
            return own[rest[0]] if rest[0] in own else self.counts()[rest[0]]
        if kind == "cost":
            return self.cost(int(rest[0]), rest[1])
        if kind == "model":
            if rest[0] == "filter_bias":
                return float(self.model.patch_embed.proj.bias[self.content["channels"][int(rest[1])]].detach())
            return float(self.found[0][rest[0]][tuple(map(int, rest[1:]))])
        return self.traced(int(kind), *rest)

    def counts(self):
        weights = [p for name, p in self.model.blocks.named_parameters() if p.ndim == 2]
        model = {"dim": 32, "layers": 2, "heads": self.model.blocks[0].attn.num_heads, "classes": 10}
        model["head_dim"] = 32 // model["heads"]
        image = {"height": 16, "width": 16, "channels": 1, "patch_size": 4, "patches": 16, "patch_numbers": 16}
        return {**model, **image, "tokens": 17, "linear": sum(p.numel() for p in weights)}

    def cost(self, side, name):
        """Counted by torch on a model that is made for the larger image."""
        tokens = side * side + 1
        larger = build_model(image_size=4 * side)
        shape = (1, 4 * side, 4 * side)
        squared = multiply_accumulates(larger, shape) - multiply_accumulates(larger, shape, attention=False)
        linear = tokens * self.counts()["linear"]
        outside = multiply_accumulates(larger, shape, attention=False) - linear
        assert outside == side * side * 16 * 32 + 32 * 10  # the projection of patches, and the head
        own = {"tokens": tokens, "scores": tokens**2, "squared": squared, "linear": linear}
        return {**own, "total": squared + linear, "part": squared / (squared + linear)}[name]

    def traced(self, number, name, *index):
        found, image = self.found[number], self.images[number]
        if name == "left":
            layer, h, i = map(int, index[:3])
            taken, d = [int(one) for one in index[3].split("-")], int(index[4])
            return float(
                found["output"][layer, h, i, d] - found["share"][layer, h, i, taken] @ found["v"][layer, h, taken, d]
            )
        at = tuple(int(one) for one in index if one)
        if name == "pixel":
            return int(image.pixels[at])
        if name == "difference":
            return self.content["images"][number]["difference"]
        if name == "products":
            p, f = at
            row, column, weight = p // 4 * 4, p % 4 * 4, self.model.patch_embed.proj.weight[self.content["channels"][f]]
            return float((image.inputs[0, :, row : row + 4, column : column + 4].double() * weight.detach()).sum())
        if name in ("evidence-share", "rollout-share"):
            values = found[name.split("-")[0]][at[0]]
            return float(values[at[1]] / values.sum())
        if name.endswith("-area"):
            return float(np.trapezoid(found[name.split("-")[0]][at], dx=1 / 16))
        if name == "product":
            layer, h, i, j, d = at
            return float(found["q"][layer, h, i, d] * found["k"][layer, h, j, d])
        if name == "sum":
            layer, h, i, j = at
            return float(found["q"][layer, h, i] @ found["k"][layer, h, j])
        if name == "rest":
            return float(1 - found["share"][at].sort(descending=True).values[:6].sum())
        if name == "part":
            layer, h, i, j, d = at
            return float(found["share"][layer, h, i, j] * found["v"][layer, h, j, d])
        return float(found[name][at])


STATES = [
    "{}",
    "{query: 6, key: 9, layer: 0, head: 1, dim: 3, wide: 7, filter: 4, size: 9}",
    "{image: 1, query: 16, key: 0, layer: 1, head: 0, dim: 11, filter: 11, size: 64}",
    "{query: 0, key: 0}",
]


def test_every_number_shown_is_that_of_the_weights(page, explained):
    expected, origins = Expected(*explained[:3]), set()
    for state in STATES:
        page.evaluate(f"() => {{ Object.assign(state, {state}); draw(); }}")
        settle(page)
        assert page.evaluate(LOOSE) == []
        for one in page.evaluate(SHOWN):
            text = one["text"].replace("−", "-").replace(",", "")
            value = expected(one["of"])
            scale = 100 if one["percent"] else 1 / float(one["unit"] or 1)
            digits = len(text.partition(".")[2]) if "e" not in text else 9
            allowed = 0.5 * 10**-digits + 5e-4 * max(1, abs(value * scale)) ** 0.5
            allowed = value * 0.06 if "e" in text else allowed
            if one["bound"] in ("<", ">"):
                low, high = (0, float(text)) if one["bound"] == "<" else (float(text), 100)
                assert low < value * scale < high, one
            else:
                assert math.isclose(float(text), value * scale, abs_tol=allowed), one
            origins.add(one["of"].split("/")[0 if one["of"][0] not in "01" else 1])
    assert len(origins) >= 22, origins


@pytest.mark.parametrize("page", [(400, "dark"), (800, "light"), (1600, "dark")], indirect=True)
def test_nothing_overflows_at_three_widths(page):
    assert page.evaluate(OVERFLOWING) == [0]


@pytest.mark.parametrize("page", [(400, "light"), (800, "dark"), (1600, "light"), (1600, "dark")], indirect=True)
def test_axe_finds_nothing(page):
    assert check_access(page) == []


@pytest.mark.parametrize("page", [(800, "light"), (800, "dark")], indirect=True)
def test_each_share_of_the_lens_can_be_read_on_its_colour(page):
    colours = page.evaluate("""() => {
        const lens = now().arrays.lens;
        lens.whole.forEach((_, k) => { lens.whole[k] = 32767 * k / (lens.whole.length - 1); });
        lens.steps.fill(1 / 32767);
        draw();
        return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(
            [...document.querySelectorAll("#lens td")].map(cell => getComputedStyle(cell))
                .map(one => [one.color, one.backgroundColor])
        ))));
    }""")
    assert len(colours) == 30
    for pair in colours:
        assert contrast(*(tuple(map(int, re.findall(r"\d+", colour))) for colour in pair)) >= 4.5, pair


def contrast(*colours):
    """WCAG 2.2, contrast ratio."""
    linear = [
        [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(one) / 255] for one in colours
    ]
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear)
    return (high + 0.05) / (low + 0.05)


def test_a_share_that_would_be_rounded_to_none_or_all_is_told_by_its_bound(page):
    shares = [0.0004, 0.0006, 0, 0.9996, 0.9994, 1]
    shown = page.evaluate(f"() => {shares}.map(share => element('p', {{}}, percent('', share)).innerText)")
    assert shown == ["< 0.1 %", "0.1 %", "0.0 %", "> 99.9 %", "99.9 %", "100.0 %"]


@pytest.mark.parametrize(
    ("deletion", "insertion", "said"),
    [
        ("falls", "rises", "Better than all random orders."),
        ("stays", "rises", "Worse than random orders"),
        ("random", "rises", "No better than random orders"),
        ("falls", "random", "No better than random orders"),
        ("falls", "stays", "Better than all random orders. The blurred image is recognized already"),
    ],
)
def test_a_map_is_judged_beside_random_orders(page, deletion, insertion, said):
    """Random orders are straight lines between areas of 0.4 and 0.6."""
    page.evaluate(
        """kinds => {
        const make = (length, value) => ({shape: [1, 5, length], at: value});
        for (const name of ["deletion", "insertion"]) {
            const last = now().arrays[name].shape[1] - 1, share = s => name === "deletion" ? 1 - s / last : s / last;
            const slope = (s, o) => Math.min(1, Math.max(0, share(s) + (o - 2) / 20));
            now().arrays[`random_${name}`] = make(last + 1, (t, o, s) => slope(s, o));
            const own = {falls: s => s ? 0 : 1, rises: s => s ? 1 : 0, stays: () => 1, random: share}[kinds[name]];
            now().arrays[name] = {shape: [3, last + 1], at: (t, s) => own(s)};
        }
        draw();
    }""",
        {"deletion": deletion, "insertion": insertion},
    )
    settle(page)
    assert said in page.locator("#evidence .tile").first.inner_text()


def test_a_class_that_the_model_all_but_excludes_has_no_curves(page):
    page.evaluate("() => { const one = now().arrays.deletion; one.whole.fill(0, one.row, 2 * one.row); draw(); }")
    settle(page)
    tiles = page.locator("#evidence .tile")
    assert [tiles.nth(k).locator("svg").count() for k in range(3)] == [1, 0, 1]
    assert "less than 5 %" in tiles.nth(1).inner_text()


def test_the_pointer_previews_and_a_click_stays(page):
    field = page.get_by_role("listbox", name="who looks")
    seen = page.locator("#softmax [data-view]")
    field.get_by_role("option", name="patch, row 2, column 3").hover()
    settle(page)
    assert "row 2, column 3 looks at" in seen.inner_text()
    page.locator("h1").hover()
    settle(page)
    assert "class token looks at" in seen.inner_text()
    field.get_by_role("option", name="patch, row 4, column 1").click()
    page.locator("h1").hover()
    settle(page)
    assert "row 4, column 1 looks at" in seen.inner_text()


def test_all_is_reached_by_keyboard(page):
    field = page.get_by_role("listbox", name="who looks")
    field.focus()
    for key, chosen in [
        ("ArrowRight", "patch, row 1, column 1"),
        ("ArrowDown", "patch, row 2, column 1"),
        ("End", "patch, row 4, column 4"),
    ]:
        page.keyboard.press(key)
        settle(page)
        assert field.get_by_role("option", selected=True).get_attribute("aria-label") == chosen
    page.keyboard.press("Home")
    settle(page)
    assert field.get_by_role("option", selected=True).inner_text() == "class token"
    page.get_by_label("layer", exact=True).first.focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="layer 2, head 2").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => [state.layer, state.head]") == [1, 1]
    page.get_by_role("button", name="image 1").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => state.image") == 1


def test_a_name_of_a_class_is_text(page):
    assert re.fullmatch(r"class <\d>", page.locator("#answer .big").inner_text())
    assert set(page.locator("#result .bars .label").all_inner_texts()) == set(NAMES)
