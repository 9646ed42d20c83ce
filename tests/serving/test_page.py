"""The page at /, in headless Chromium: an image, its answer, a removed patch, a drawing; by mouse and by keyboard."""

import pytest
from browser import check_access, open_browser

from serving.conftest import encode, serving

SECONDS = 60_000  # milliseconds to wait at most
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(bundle):
    with serving(bundle.folder) as running:
        yield running.address


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def opened(browser, address):
    """opened(width, scheme): the page, which must log no error and ask no other server."""
    noted, pages = [], []

    def open_page(width=800, scheme="light", bypass_csp=False):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=bypass_csp)
        page.on("console", lambda message: noted.append(message.text))
        page.on("pageerror", lambda error: noted.append(str(error)))
        page.on("request", lambda request: noted.append(request.url) if not is_own(request.url, address) else None)
        page.set_default_timeout(SECONDS)
        page.goto(f"{address}/")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert noted == []


def is_own(url, address):
    return url.startswith((address, "data:", "blob:"))


def give_image(page):
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": encode()})
    page.locator("#answer li").first.wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (800, "dark"), (1600, "light")])
def test_it_fits_and_patches_can_be_removed(opened, width, scheme):
    page = opened(width, scheme)
    give_image(page)
    before = page.locator("#answer").inner_text()
    assert page.locator("#answer li").count() == 3
    page.locator("[role=gridcell]").nth(3).click()
    page.get_by_text("1 of 64 patches are removed").wait_for()
    assert page.locator("#answer").inner_text() != before
    for view in ("heat", "attention", "rollout"):
        page.select_option("#view", view)
        assert page.locator("[role=gridcell]").nth(5).evaluate("cell => cell.style.background") != "none"
    page.get_by_role("button", name="Restore").click()
    page.locator("#answer", has_text="patches are removed").wait_for(state="detached")
    assert page.locator("#answer").inner_text() == before
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_all_can_be_done_with_the_keyboard(opened):
    page = opened()
    page.locator("#pad").focus()
    for key in (" ", *["ArrowDown"] * 5, " "):
        page.keyboard.press(key)
    page.locator("#answer li").first.wait_for()
    page.locator("[role=gridcell]").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_text("1 of 64 patches are removed").wait_for()
    assert page.evaluate("document.activeElement.ariaLabel").startswith("row 2, column 2, removed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened, scheme):
    page = opened(scheme=scheme, bypass_csp=True)
    give_image(page)
    assert check_access(page) == []
