"""Read columns of a CSV, TSV or Parquet file, as text."""

import csv
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitlab.data.pools.split_names import SPLITS
from vitlab.errors import ConfigError, DataError, format_error

MOST_LETTERS = 2**20  # of a line
NO_TEXT = re.compile("[\udc80-\udcff]")  # bytes that stand for themselves
SEPARATORS = {".csv": (",", "commas"), ".tsv": ("\t", "tabs")}

Column = str | int  # its name, or its number from 1


class TableLayout(NamedTuple):
    """Say how a CSV or TSV file is written: whether its first row names the columns, and whether a value may be quoted;
    where that is open, `quoted_key` sets it."""

    header: bool = True
    quoted: bool = True
    quoted_key: str | None = None


WITH_HEADER = TableLayout()


def read_table(
    file: Path, columns: Mapping[str, Column], layout: TableLayout = WITH_HEADER, key: str = "file"
) -> dict[str, list[str]]:
    """Read the columns, each under the key of data.source that names it, as `key` does the file. Raises DataError for a
    file that cannot be read and for a column that is missing or holds no text, and ConfigError without pyarrow."""
    if not file.is_file():
        raise DataError(f"data.source.{key}: there is no file {file}; give a CSV, TSV or Parquet file")
    try:
        return READERS[file.suffix.lower()](file, columns, layout)
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as {file.suffix[1:]}: {format_error(error)}") from error


def describe_row(file: Path, row: int, layout: TableLayout = WITH_HEADER) -> str:
    """Say where a row stands: by the line of a text file, since rows may be blank or take several lines."""
    if file.suffix.lower() not in SEPARATORS:
        return f"{file}, row {row + 1}"
    line, _ = next(islice(read_rows(file, layout), row + layout.header, None))
    return f"{file}, line {line}"


def read_lines(file: Path, columns: Mapping[str, Column], layout: TableLayout) -> dict[str, list[str]]:
    """Read the columns as they are written. Raises DataError for a missing column, for a row of another length, and for
    what is no UTF-8 text, but for a path, which may be any bytes."""
    _, first = next(read_rows(file, layout), (1, []))
    places = find_columns(file, columns, first)
    table: list[list[str]] = [[] for _ in places]
    for line, row in islice(read_rows(file, layout), int(layout.header), None):
        if len(row) != len(first):
            separators = SEPARATORS[file.suffix.lower()][1]
            advice = f"quote the {separators}" if layout.quoted else f"remove the {separators} within values"
            raise DataError(f"{file}, line {line}: {len(row)} values for {len(first)} columns; {advice}")
        for key, values, place in zip(columns, table, places, strict=True):
            if NO_TEXT.search(row[place]) and key != "path_column":
                raise DataError(
                    f"{file}, line {line}: the {format_column(columns[key])} is not UTF-8 text; save the table in UTF-8"
                )
            values.append(row[place])
    return dict(zip(columns, table, strict=True))


def read_rows(file: Path, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the line that it begins in. Raises DataError for one that does not
    end, or has letters behind closed quotes."""
    separator, _ = SEPARATORS[file.suffix.lower()]
    own: Any = {} if layout.quoted else {"quoting": csv.QUOTE_NONE}
    rows, line = csv.reader(read_text_lines(file), delimiter=separator, strict=True, **own), 1
    try:
        for row in rows:
            if row:
                yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        advice = "close each quote at the end of its value, double quotes inside a value, and shorten long values"
        if layout.quoted and layout.quoted_key is not None:
            advice += f"; or set {layout.quoted_key}=false to read quotes as ordinary letters"
        raise DataError(f"{file}, line {line}: {error}; {advice}") from error


def read_text_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a text file. Raises DataError for what is no UTF-8 text, before it fills the memory."""
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
        for number, line in enumerate(iter(partial(text.readline, MOST_LETTERS), ""), start=1):
            if "\0" in line:
                raise DataError(f"{file}, line {number}, holds a NUL byte, as UTF-16 does; save the table in UTF-8")
            if len(line) == MOST_LETTERS:
                raise DataError(
                    f"{file}, line {number}, has more than {MOST_LETTERS:,} letters; give a CSV or TSV table"
                )
            yield line


def read_parquet(file: Path, columns: Mapping[str, Column], layout: TableLayout) -> dict[str, list[str]]:
    """Read the columns as text; "" for null. Raises DataError for a missing column and for one that holds neither text
    nor whole numbers, and ConfigError without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"data.source.file {file}: Parquet needs pyarrow; pip install pyarrow") from error
    try:
        names = parquet.read_schema(file).names
        wanted = [names[place] for place in find_columns(file, columns, names)]
        table = parquet.read_table(file, columns=list(dict.fromkeys(wanted)))
    except pyarrow.ArrowException as error:
        raise ValueError(error) from error
    read = {key: (name, table.column(name).to_pylist()) for key, name in zip(columns, wanted, strict=True)}
    return {key: list(texts(values, f"{file}: column {name}")) for key, (name, values) in read.items()}


def texts(values: Iterable[Any], place: str) -> Iterable[str]:
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise DataError(f"{place} holds {reprlib.repr(value)}, but must hold text or whole numbers")
        if isinstance(value, str) and "\0" in value:
            raise DataError(f"{place} holds {value}, with a NUL byte, which a file name cannot have; remove the row")
        yield "" if value is None else str(value)


def find_columns(file: Path, columns: Mapping[str, Column], present: Sequence[str]) -> list[int]:
    """Find the columns among those that are present. Raises DataError for one that is missing, or there twice."""
    places = []
    for key, column in columns.items():
        if isinstance(column, int) and not 1 <= column <= len(present):
            raise DataError(f"data.source.{key}: {file} has no column {column}; it has {len(present)}")
        if isinstance(column, str) and present.count(column) != 1:
            there = f"has {present.count(column)} columns" if column in present else "has no column"
            raise DataError(f"data.source.{key}: {file} {there} {column}; it has {', '.join(present) or 'none'}")
        places.append(column - 1 if isinstance(column, int) else present.index(column))
    return places


def format_column(column: Column) -> str:
    return column if isinstance(column, str) else f"text in column {column}"


def check_ending(file: str, key: str = "file") -> Path:
    """Give the path of a table. Raises ConfigError for a file of another kind than `READERS` takes."""
    *others, last = READERS
    if Path(file).suffix.lower() not in READERS:
        raise ConfigError(f"data.source.{key} {file} is neither {', '.join(others)} nor {last}")
    return Path(file)


def check_filled(file: Path, column: Column, values: Sequence[str], layout: TableLayout = WITH_HEADER) -> None:
    """Raise DataError, which names the row, for a value that is empty."""
    for row, value in enumerate(values):
        if not value.strip():
            place = describe_row(file, row, layout)
            raise DataError(f"{place}: the {format_column(column)} is empty; fill it, or remove the row")


def find_split_rows(
    file: Path, column: Column, values: Sequence[str], layout: TableLayout = WITH_HEADER
) -> dict[str, np.ndarray]:
    """Find the rows of each split, which the values of a column say. Raises DataError for another value."""
    numbers = {split: number for number, split in enumerate(SPLITS)}
    found = np.array([numbers.get(value, -1) for value in values])
    for row in np.flatnonzero(found < 0)[:1]:
        raise DataError(
            f"{describe_row(file, row, layout)}: the {format_column(column)} is '{values[row]}', but must be one of: "
            f"{', '.join(SPLITS)}"
        )
    return {split: rows for split, number in numbers.items() if len(rows := np.flatnonzero(found == number))}


READERS = {".csv": read_lines, ".tsv": read_lines, ".parquet": read_parquet}
