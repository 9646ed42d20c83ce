"""Define what a page is made of: sections of texts, tables, charts, pictures and commands; and write it as HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from vitlab.reports.page.charts import Chart

LARGEST = 5_000_000  # bytes of a page


@dataclass(frozen=True)
class Text:
    """A paragraph; `style` is lead, note or empty."""

    kind: ClassVar[str] = "text"
    text: str
    style: str = ""


@dataclass(frozen=True)
class Table:
    """Rows by the names of their columns, which may differ; the first column names the row."""

    kind: ClassVar[str] = "table"
    caption: str
    rows: Sequence[dict[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))


@dataclass(frozen=True)
class Charts:
    """Charts side by side."""

    kind: ClassVar[str] = "charts"
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Item:
    """A picture, or several of one sample with what each is, and lines below them. `mark` is right, wrong or empty."""

    pictures: Sequence[tuple[str, str]]  # data URI, and what it shows
    lines: Sequence[str]
    mark: str = ""


@dataclass(frozen=True)
class Gallery:
    """Pictures in rows."""

    kind: ClassVar[str] = "gallery"
    title: str
    items: Sequence[Item]


@dataclass(frozen=True)
class Matrix:
    """Counts of each true class (row) and predicted class (column)."""

    kind: ClassVar[str] = "matrix"
    caption: str
    names: Sequence[str]
    counts: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Commands:
    """Command lines, under what they belong to."""

    kind: ClassVar[str] = "commands"
    groups: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Folded:
    """Blocks that a reader opens."""

    kind: ClassVar[str] = "folded"
    title: str
    blocks: Sequence["Block"]


Block = Text | Table | Charts | Gallery | Matrix | Commands | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    name: str  # of its anchor
    title: str
    blocks: Sequence[Block] = field(default_factory=list)


def render_page(title: str, subtitle: str, sections: Sequence[Section]) -> bytes:
    """Write a page with its style and without scripts; sections without blocks are left out."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = [section for section in sections if section.blocks]
    page = environment.get_template("page.html").render(title=title, subtitle=subtitle, sections=shown)
    return page.encode("utf-8", "backslashreplace")
