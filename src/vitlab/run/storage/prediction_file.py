"""Write what a model says of many inputs while it goes on, so that a killed command continues where it stopped.

Each input adds a line of JSON to `<output>.partial`; the number of its lines is the whole state. In the end it becomes
the output: CSV, JSON lines or Parquet, by the ending of its name.
"""

import csv
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from vitlab.atomic_files import LineFeeds, compute_digest, format_json, write_atomically
from vitlab.errors import ConfigError, StorageError
from vitlab.run.storage.output import Output, check_ending

Row = dict[str, Any]
ROW, FAILED = "row", "failed"
ENDINGS = (".csv", ".jsonl", ".parquet")
MEANING = {"inputs": "the files that are read", "written": "the weights of the run"}  # parts that are no keys
ROWS_AT_ONCE = 10_000  # of a Parquet file
OPEN: list[BinaryIO] = []  # the locked files of this process


def close_in_worker() -> None:
    """Close what a forked worker has inherited: it may outlive this process, and would keep its lock."""
    for stream in OPEN:
        stream.close()
    OPEN.clear()


os.register_at_fork(after_in_child=close_in_worker)


class PredictionFile:
    """`done` inputs have a line already. `path` is the output, and `failed` the file that lists the inputs without a
    row."""

    def __init__(self, path: Path, partial: Path, stream: BinaryIO, done: int):
        self.path = path
        self.partial = partial
        self.failed = path.with_name(f"{path.stem}.failed.csv")
        self.done = done
        self._stream = stream

    def add(self, lines: Iterable[tuple[str, Row]]) -> None:
        """Append the lines of a batch, each a `ROW`, or what `FAILED`."""
        for kind, row in lines:
            self._stream.write(json.dumps({kind: row}, ensure_ascii=False).encode() + b"\n")
            self.done += 1
        self._stream.flush()

    def finish(self, kind: str) -> tuple[int, Row | None]:
        """Write the output, and the list of failures if there are any; `kind` is the column of an output without rows.
        Return the number of rows, and the first failure, None if there is none."""
        count = write_rows(self.path, self._read(ROW), kind)
        failures = self._read(FAILED)
        first = next(failures, None)
        if first is None:
            self.failed.unlink(missing_ok=True)  # of an output that is replaced
        else:
            write_rows(self.failed.with_suffix(".csv"), chain([first], failures), kind)
        self.partial.unlink()
        return count, first

    def _read(self, kind: str) -> Iterator[Row]:
        with open(self.partial, "rb") as file:
            next(file)
            yield from (line[kind] for line in map(json.loads, file) if kind in line)


def is_unfinished(given: str | None) -> bool:
    """Whether a start that wrote this output was killed before it had removed the partial file."""
    return given is not None and Path(f"{given}.partial").is_file()


@contextmanager
def prediction_file(output: Output, request: Row, *, overwrite: bool) -> Iterator[PredictionFile]:
    """Open the file for what a command is asked to predict, or continue the one that an earlier start of the same
    command has begun. A start that adds nothing leaves nothing. Raises ConfigError where the beginning of another
    prediction is in the way, and StorageError while another command writes the same file."""
    digest, parts = compute_digest(format_json(request)), digest_parts(request)
    path = find_begun(output, digest) or output.make()
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(f"another command is writing {path}; name another output") from error
        if read_digest(partial) not in (None, digest):
            if not overwrite:
                raise ConfigError(
                    f"{partial} belongs to another, unfinished prediction{explain_difference(partial, parts)}; name "
                    "another output, or add overwrite=true"
                )
            stream.truncate(0)
        OPEN.append(stream)
        file = PredictionFile(path, partial, stream, drop_cut_line(stream, {"request": digest, "parts": parts}))
        before = file.done
        try:
            yield file
        except BaseException:
            if file.done == before == 0:
                partial.unlink(missing_ok=True)
                if output.home is not None:
                    path.parent.rmdir()
            raise
        finally:
            OPEN.remove(stream)


def find_begun(output: Output, digest: str) -> Path | None:
    """Find the output that an earlier start of the same command has begun in a folder named by its time."""
    if output.home is None:
        return None
    begun = sorted(output.home.parent.glob(f"*/{output.path.name}.partial"))
    return next((path.with_suffix("") for path in begun if read_digest(path) == digest), None)


def read_digest(partial: Path) -> str | None:
    """Read what a partial file is of; None for an empty one."""
    with open(partial, "rb") as file:
        try:
            return str(json.loads(file.readline())["request"])
        except (ValueError, LookupError, TypeError):
            return "" if partial.stat().st_size else None


def digest_parts(request: Row) -> dict[str, str]:
    return {key: compute_digest(format_json(value)) for key, value in request.items()}


def explain_difference(partial: Path, parts: dict[str, str]) -> str:
    """Name the keys in which the request of a partial file differs; "" where an earlier version has not stored them."""
    with open(partial, "rb") as file, suppress(ValueError, LookupError, TypeError):
        known = json.loads(file.readline())["parts"]
        keys = sorted(key for key in known.keys() | parts.keys() if known.get(key) != parts.get(key))
        if "share" in keys:
            return ", of another share=, and each share needs an output of its own"
        return f", which differs in {', '.join(MEANING.get(key, f'{key}=') for key in keys)}"
    return ""


def drop_cut_line(stream: BinaryIO, head: Row) -> int:
    """Cut off a line that a killed writer has not ended, write the first line if there is none, and return the number
    of the others."""
    stream.seek(0)
    whole, count = 0, -1
    for line in stream:
        if not line.endswith(b"\n"):
            break
        whole, count = whole + len(line), count + 1
    stream.truncate(whole)
    if count < 0:
        stream.write(json.dumps(head).encode() + b"\n")
        stream.flush()
    return max(count, 0)


# -- the forms of an output


def check_form(path: Path) -> None:
    """Raise ConfigError for a file of another form, and for a Parquet file where no library writes it."""
    check_ending(path, ENDINGS)
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ConfigError(f"output={path} needs pyarrow; pip install 'vitlab[parquet]', or name a .csv") from error


def write_rows(path: Path, rows: Iterable[Row], kind: str) -> int:
    """Write rows with the same columns as CSV, JSON lines or Parquet; return their number."""
    write = {".jsonl": write_jsonl, ".parquet": write_parquet}.get(path.suffix.lower(), write_csv)
    with write_atomically(path) as temporary:
        return write(temporary, rows, kind)


def write_csv(path: Path, rows: Iterable[Row], kind: str) -> int:
    count = 0
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(LineFeeds(file))
        for count, row in enumerate(rows, start=1):
            if count == 1:
                writer.writerow(row)
            writer.writerow(row.values())
        if not count:
            writer.writerow([kind])
    return count


def write_jsonl(path: Path, rows: Iterable[Row], kind: str) -> int:
    with open(path, "w", encoding="utf-8") as file:
        return sum(file.write(json.dumps(row, ensure_ascii=False) + "\n") > 0 for row in rows)


def write_parquet(path: Path, rows: Iterable[Row], kind: str) -> int:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    count, writer = 0, None
    rows = iter(rows)
    while part := list(islice(rows, ROWS_AT_ONCE)):
        table = pa.Table.from_pylist(part)
        writer = writer or ParquetWriter(path, table.schema)
        writer.write_table(table)
        count += len(part)
    with writer or ParquetWriter(path, pa.schema([(kind, pa.string())])):
        return count
