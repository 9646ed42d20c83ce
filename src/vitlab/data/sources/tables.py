"""Read columns of a CSV or Parquet file, as text."""

import csv
import re
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from vitlab.errors import ConfigError, DataError, in_one_line

MOST_LETTERS = 2**20  # of a line
NO_TEXT = re.compile("[\udc80-\udcff]")  # bytes that stand for themselves


def read_table(file: Path, columns: dict[str, str]) -> dict[str, list[str]]:
    """Read the columns, which are named by keys of data.source. Raises DataError for a file that cannot be read and for
    a column that is missing or holds no text, and ConfigError without pyarrow."""
    try:
        return READERS[file.suffix.lower()](file, columns)
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as {file.suffix[1:]}: {in_one_line(error)}") from error


def place_of(file: Path, row: int) -> str:
    """Say where a row stands: by the line of a CSV file, since rows may be blank or take several lines."""
    if file.suffix.lower() != ".csv":
        return f"{file}, row {row + 1}"
    line, _ = next(islice(rows_of(file), row + 1, None))  # behind the header
    return f"{file}, line {line}"


def read_csv(file: Path, columns: dict[str, str]) -> dict[str, list[str]]:
    """Read the columns as they are written. Raises DataError for a missing column, for a row of another length, and for
    what is no UTF-8 text, but for a path, which may be any bytes."""
    rows = rows_of(file)
    _, header = next(rows, (1, []))
    check_columns(file, columns, header)
    places = [header.index(column) for column in columns.values()]
    table: list[list[str]] = [[] for _ in places]
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{file}, line {line}: {len(row)} values for {len(header)} columns; quote the commas")
        for key, values, place in zip(columns, table, places, strict=True):
            if NO_TEXT.search(row[place]) and key != "path_column":
                raise DataError(f"{file}, line {line}: the {columns[key]} is no UTF-8 text; save the table in UTF-8")
            values.append(row[place])
    return dict(zip(columns, table, strict=True))


def rows_of(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the line that it begins in. Raises DataError for one that does not
    end, or has letters behind closed quotes."""
    rows, line = csv.reader(lines_of(file), strict=True), 1
    try:
        for row in rows:
            if row:
                yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{file}, line {line}: {error}; close quotes where the value ends, write one within it twice, and shorten "
            "what is too long"
        ) from error


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a text file. Raises DataError for what is no UTF-8 text, before it fills the memory."""
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
        for number, line in enumerate(iter(partial(text.readline, MOST_LETTERS), ""), start=1):
            if "\0" in line:
                raise DataError(f"{file}, line {number}, holds a NUL byte, as UTF-16 does; save the table in UTF-8")
            if len(line) == MOST_LETTERS:
                raise DataError(f"{file}, line {number}, has more than {MOST_LETTERS:,} letters; is it a table?")
            yield line


def read_parquet(file: Path, columns: dict[str, str]) -> dict[str, list[str]]:
    """Read the columns as text; "" for null. Raises DataError for a missing column and for one that holds neither text
    nor whole numbers, and ConfigError without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"data.source.file {file}: Parquet needs pyarrow; pip install pyarrow") from error
    try:
        schema = parquet.read_schema(file)
        check_columns(file, columns, schema.names)
        table = parquet.read_table(file, columns=list(dict.fromkeys(columns.values())))
    except pyarrow.ArrowException as error:
        raise ValueError(error) from error
    read = {key: table.column(column).to_pylist() for key, column in columns.items()}
    return {key: list(texts(values, f"{file}: column {columns[key]}")) for key, values in read.items()}


def texts(values: Iterable[Any], place: str) -> Iterable[str]:
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise DataError(f"{place} holds {reprlib.repr(value)}, and takes text or whole numbers")
        if isinstance(value, str) and "\0" in value:
            raise DataError(f"{place} holds {value}, with a NUL byte, which no file has in its name; remove the row")
        yield "" if value is None else str(value)


def check_columns(file: Path, columns: dict[str, str], present: Sequence[str]) -> None:
    for key, column in columns.items():
        if column not in present:
            raise DataError(f"data.source.{key}: {file} has no column {column}; it has {', '.join(present) or 'none'}")


READERS = {".csv": read_csv, ".parquet": read_parquet}
