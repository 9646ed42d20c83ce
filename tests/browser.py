"""Pages in a real browser without a window. A test that needs one is skipped, with the reason, where it is missing."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from vitlab.config.home import ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
AXE = (os.environ.get("AXE"), ROOT / "node_modules" / "axe-core" / "axe.min.js")  # npm install axe-core


@contextmanager
def open_browser():
    """The browser of this machine, with nothing of a network."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"there is no browser: none of {', '.join(BROWSERS)}")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def find_axe():
    """The script that finds what people with other senses cannot use."""
    for path in filter(None, AXE):
        if Path(path).is_file():
            return path
    pytest.skip("axe-core is missing; npm install axe-core, or name its axe.min.js by AXE=")


def check_access(page):
    """What axe finds wrong with an opened page, in words."""
    page.evaluate(Path(find_axe()).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]
