"""Lay out README, docs and the notebooks as the pages of a static site: python docs/make_pages.py FOLDER

Pages are read in the repository first, so they are plain Markdown. Here links that lead out of them become plain words,
equations become MathML, notebooks become Markdown, and each room of src/vitlab gets a page of reference, the public
names of vitlab another one.
"""

import ast
import base64
import json
import re
import shutil
import sys
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
VITLAB = ROOT / "src" / "vitlab"
OPTIONS = {"ranges": "\n    options: {show_if_no_docstring: true}"}  # its types have none
PUBLIC = "What `import vitlab` offers, from signatures and docstrings. [From Python](../python.md) shows it in use."

TEX = re.compile(
    r"^```(?P<kind>\w*)[^\n]*\n(?P<fence>.*?)^```$|`[^`\n]+`|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\n]+)\$",
    re.M | re.S,
)


def equations(text: str) -> str:
    """TeX between ```math and ```, $$ and $$, or $ and $, as MathML, which browsers set by themselves."""

    def mathml(found: re.Match[str]) -> str:
        block = found["fence"] if found["kind"] == "math" else found["block"]
        if block:
            return f'<div class="equation">{convert(block, display="block")}</div>'
        return convert(found["inline"]) if found["inline"] else found[0]  # code stays as it is

    return TEX.sub(mathml, text)


def links(text: str, home: Path) -> str:
    """Links between pages go on leading there; what is a file elsewhere in the repository is named."""

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, _, anchor = target.partition("#")
        if ":" in target or not path:
            return match[0]
        found = (home / path).resolve()
        if found.is_relative_to(DOCS):
            page = found.relative_to(DOCS)
            page = page.with_suffix(".md") if page.suffix == ".ipynb" else page
        elif found.parent == ROOT and found.suffix == ".md":
            page = Path(found.name)
        else:
            return words
        return f"[{words}]({page}{'#' + anchor if anchor else ''})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def notebook(path: Path, pages: Path) -> str:
    """The cells of a notebook, and what they gave."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                picture = pages / f"{path.stem}_{len(parts)}.png"
                picture.write_bytes(base64.b64decode("".join(data["image/png"])))
                parts.append(f"![{path.stem}]({picture.name})")
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts)


def reference(pages: Path) -> None:
    """A page for each room, of its files, and a list of them with the sentence at their doors."""
    lines = ["# Reference", "", "From the docstrings, room by room; each file begins with what its letters mean.", ""]
    rooms = sorted(door.parent.relative_to(VITLAB.parent) for door in VITLAB.rglob("__init__.py"))
    for room in rooms:
        name = ".".join(room.parts)
        door = (VITLAB.parent / room / "__init__.py").read_text(encoding="utf-8")
        lines.append(f"- [{name}]({name}.md): {first_sentence(door)}")
        files = sorted((VITLAB.parent / room).glob("[a-z]*.py"))
        parts = [
            f"# {name}",
            first_sentence(door),
            *(f"::: {name}.{file.stem}{OPTIONS.get(file.stem, '')}" for file in files),
        ]
        (pages / f"{name}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    (pages / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_public_names(pages: Path) -> None:
    """A page of the names in vitlab.__all__, with signatures and docstrings."""
    door = ast.parse((VITLAB / "__init__.py").read_text(encoding="utf-8"))
    assigned = {ast.unparse(node.targets[0]): node.value for node in door.body if isinstance(node, ast.Assign)}
    names = sorted(name for names in ast.literal_eval(assigned["ORIGINS"]).values() for name in names)
    _, examples = (ast.get_docstring(door) or "").split("\n\n")
    parts = ["# Public API", PUBLIC, f"```python\n{examples}\n```", *(f"::: vitlab.{name}" for name in names)]
    (pages / "public.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def first_sentence(module: str) -> str:
    """What a file says of itself at its top."""
    text = ast.get_docstring(ast.parse(module)) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def main(pages: Path) -> None:
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.md", "*.ipynb", "*.py"))
    (pages / "reference").mkdir()
    documents = {*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("*.ipynb")}
    for path in sorted(documents - {DOCS / "package.md"}):  # which describes the package where it is published
        text = notebook(path, pages) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
        name = "index.md" if path.name == "README.md" else f"{path.stem}.md"
        (pages / name).write_text(equations(links(text, path.parent)), encoding="utf-8")
    reference(pages / "reference")
    write_public_names(pages / "reference")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
