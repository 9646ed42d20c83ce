"""Write rows as tables for a page and for a paper."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

NARROW = 16  # letters that a line of a column has at least
SPECIAL = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"}
SPECIAL |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}


def list_columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def cell(value: Any) -> str:
    """Write a value: numbers with four significant digits, nothing for None."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def format_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Write rows as a table in Markdown; a row is a value for each column that it has."""
    names = list_columns(rows)
    lines = [names, ["---"] * len(names), *cells(rows, names)]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def format_latex(rows: Sequence[dict[str, Any]]) -> str:
    """Write rows as a tabular in LaTeX, with the rules of the package booktabs."""
    names = list_columns(rows)
    lines = [" & ".join(escape_text(text) for text in line) + r" \\" for line in (names, *cells(rows, names))]
    begin = rf"\begin{{tabular}}{{{'l' * len(names)}}}"
    return "\n".join([begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", ""])


def build_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Lay rows out as a table for the terminal."""
    names = list_columns(rows)
    table = Table(*(Column(Text(name), overflow="fold") for name in names))
    for row in cells(rows, names):
        table.add_row(*map(Text, row))
    return table


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows, of which the first column can be copied: it is never broken, and nothing is where the output is not a
    terminal."""
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    table = Table()
    for number, name in enumerate(names):
        widest = max(map(cell_len, [name, *(row[number] for row in rows)]))
        whole = number == 0 or not console.is_terminal
        table.add_column(Text(name), overflow="fold", min_width=widest if whole else min(widest, NARROW))
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def cells(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[list[str]]:
    return [[cell(row.get(name)) for name in names] for row in rows]


def escape_text(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)
