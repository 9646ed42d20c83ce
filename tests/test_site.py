"""The site that make docs builds: whole, with nothing that is fetched from elsewhere."""

import html
import inspect
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from hydra.utils import get_object

import vitlab
from vitlab.config.home import CONF, ROOT

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
    assert {f"{path.stem}.html" for path in written if path.name not in ("README.md", "package.md")} | {
        "index.html"
    } <= names
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


def signature(page, path):
    """The signature of a class or function on a page of the reference, without its markup."""
    text = (SITE / "reference" / f"{page}.html").read_text(encoding="utf-8")
    found = re.search(rf'<h\d id="{re.escape(path)}".*?<div class="doc-signature[^>]*>(.*?)</div>', text, re.S)
    assert found, f"{path} has no signature on the page {page}"
    return html.unescape(re.sub("<[^>]+>", "", found[1])).strip()


def states(shown, function):
    """Whether a signature states the arguments of a function, and as many defaults as it has."""
    parameters = inspect.signature(function).parameters.values()
    return all(re.search(rf"\b{one.name}\b[:,) ]", shown) for one in parameters) and shown.count(" = ") == sum(
        one.default is not one.empty for one in parameters
    )


TARGETS = sorted(
    {name for file in CONF.rglob("*.yaml") for name in re.findall(r"_target_: (vitlab\.\S+)", file.read_text())}
)


def test_each_constructor_of_a_config_has_its_signature(pages):
    assert len(TARGETS) > 60
    for name in TARGETS:
        target = get_object(name)
        page = ".".join(Path(inspect.getfile(target)).parent.relative_to(ROOT / "src").parts)
        shown = signature(page, f"{target.__module__}.{target.__qualname__}")
        assert states(shown, target), shown


def test_a_range_says_its_bounds(pages):
    assert "vitlab.ranges.Rate" in pages[SITE / "reference" / "vitlab.html"].ids
    assert "Annotated[float, Range(least=0, below=1)]" in signature("vitlab", "vitlab.ranges.Rate")
    links = pages[SITE / "reference" / "vitlab.models.html"].leads
    assert any(urldefrag(link).fragment == "vitlab.ranges.Rate" for link in links)


def test_the_public_names_have_a_page_of_their_own(pages):
    headings = {name for name in pages[SITE / "reference" / "public.html"].ids if re.fullmatch(r"vitlab\.\w+", name)}
    assert headings == {f"vitlab.{name}" for name in vitlab.__all__}
    for name in vitlab.__all__:
        if name != "VitlabError":  # as any exception
            shown = signature("public", f"vitlab.{name}")
            assert states(shown, getattr(vitlab, name)), shown


def test_equations_are_set(pages):
    text = (SITE / "equations.html").read_text(encoding="utf-8")
    assert text.count("<math") > 15
    for path in SITE.glob("*.html"):
        assert "$$" not in path.read_text(encoding="utf-8")
