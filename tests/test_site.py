"""The site that make docs builds: whole, with nothing that is fetched from elsewhere."""

import re
import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest

from vitlab.config.home import ROOT

pytestmark = pytest.mark.slow
SITE = ROOT / "site"
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """What a page loads, where its links lead, and what can be linked to in it."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: set[str] = set()
        self.leads: set[str] = set()
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found["id"]} if "id" in found else set()
        if tag in LOADED and LOADED[tag] in found:
            self.loads.add(found[LOADED[tag]])
        if tag == "a" and "href" in found:
            self.leads.add(found["href"])


@pytest.fixture(scope="module")
def pages():
    """The built pages by their files. The environment that builds them is made by make docs."""
    if not (ROOT / ".venv-docs" / "ready").is_file():
        pytest.skip("make docs has not been called")
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Page(path.read_text(encoding="utf-8")) for path in SITE.rglob("*.html")}


def outside(address: str) -> bool:
    return re.match(r"(?!data:)[a-z]+:|//", address) is not None


def test_every_document_and_every_room_has_a_page(pages):
    names = {path.relative_to(SITE).as_posix() for path in pages}
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.ipynb")]
    assert {f"{path.stem}.html" for path in written if path.name != "README.md"} | {"index.html"} <= names
    doors = (ROOT / "src" / "vitlab").rglob("__init__.py")
    rooms = {".".join(door.parent.relative_to(ROOT / "src").parts) for door in doors}
    assert {f"reference/{room}.html" for room in rooms} <= names


def test_nothing_is_loaded_from_elsewhere(pages):
    assert {address for page in pages.values() for address in page.loads if outside(address)} == set()
    styles = [path.read_text(encoding="utf-8") for path in SITE.rglob("*.css")]
    loaded = {address for style in styles for address in re.findall(r"(?:url\(|@import\s)[\"']?([^\"')]+)", style)}
    assert {address for address in loaded if outside(address)} == set()


def test_every_link_within_it_leads_somewhere(pages):
    dead = []
    for path, page in pages.items():
        for address in page.leads | page.loads:
            file, anchor = urldefrag(unquote(address))
            target = (path.parent / file).resolve() if file else path
            if outside(address) or address.startswith("data:") or path.name == "404.html":
                continue
            if not target.exists() or (anchor and anchor not in pages[target].ids | {"__comments"}):
                dead.append((path.name, address))
    assert dead == []


def test_equations_are_set(pages):
    text = (SITE / "equations.html").read_text(encoding="utf-8")
    assert text.count("<math") > 15
    for path in SITE.glob("*.html"):
        assert "$$" not in path.read_text(encoding="utf-8")
