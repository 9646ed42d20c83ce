"""vitlab-predict BUNDLE IMAGES… [options]: tell the classes of image files, in a CSV or a table."""

import csv
import glob
import os
import shutil
import sys
import warnings
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from vitlab_runtime.errors import ImageError, Refusal, escape_letters
from vitlab_runtime.pixels import format_name
from vitlab_runtime.predictor import load

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MOST_LINES = 20  # that are printed of images


def main() -> int:
    """Run the command and return its exit status, which is vitlab's for the same error."""
    warnings.simplefilter("ignore")  # each image gets a row, or a reason
    parser = ArgumentParser("vitlab-predict", usage=SUPPRESS, description=__doc__)
    parser.add_argument("bundle", help="a folder that vitlab export format=bundle wrote")
    parser.add_argument("images", nargs="+", help="files, folders or quoted globs")
    parser.add_argument("--output", type=Path, metavar="FILE", help="a .csv file; without it, a table is printed")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.add_argument("--top-k", type=int, default=5, metavar="N", help="classes to tell of each image (5)")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="images that are scored at once (32)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="0, the default: one for each core")
    options = parser.parse_args()
    try:
        predict(options)
        return 0
    except KeyboardInterrupt:
        return 130
    except Refusal as error:
        print(f"vitlab-predict: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"vitlab-predict: cannot write {options.output or 'the table'}: {error.strerror}", file=sys.stderr)
        return 6


def predict(options: Namespace) -> None:
    """Write the classes of every image. Raises Refusal, and OSError for an output that cannot be written."""
    output, size = options.output, options.batch_size
    if output is not None:
        check_output(output, options)
    predictor = load(options.bundle, options.threads, top_k=options.top_k, batch_size=size)
    names = [name for given in options.images for name in find_images(given)]
    with collect_lines(output) as told, collect_lines(output) as failed:
        rows, reasons, bad = csv.writer(told), csv.writer(failed), 0
        reasons.writerow(["image", "reason"])
        for start in range(0, len(names), size):
            columns = predictor(names[start : start + size])
            if start == 0:
                rows.writerow(["image", *list(columns)[3:-1]])  # without class, probability and error
            for name, _, _, *cells, reason in zip(*(column.tolist() for column in columns.values()), strict=True):
                rounded = [round(cell, 6) if isinstance(cell, float) else cell for cell in cells]
                (reasons if reason else rows).writerow([format_name(name), *([reason] if reason else rounded)])
                bad += bool(reason)
            if sys.stderr.isatty():
                print(f"{min(start + size, len(names))} of {len(names)} images", end="\r", file=sys.stderr)
        if output is None:
            print_table(told)
        else:
            failures = output.with_name(f"{output.stem}.failed.csv")
            failures.unlink(missing_ok=True)  # of an output that is replaced
            save_lines(told, output)
            if bad:
                save_lines(failed, failures)
        print(f"{len(names) - bad} images, {bad} unreadable" + (f"; all in {output}" if output else ""), flush=True)
        if bad:
            failed.seek(0)
            for _, reason in islice(csv.reader(failed), 1, 1 + MOST_LINES):
                print(reason, file=sys.stderr)
            lists = f"; {failures} lists them with reasons, and {output} has all other images" if output else ""
            raise ImageError(f"{bad} of {len(names)} images cannot be read{lists}")


def check_output(output: Path, options: Namespace) -> None:
    """Raise Refusal for a file that exists or must not be replaced."""
    if output.suffix != ".csv" or output.is_dir():
        raise Refusal(f"--output {output} is not the name of a .csv file")
    if output.exists() and not options.overwrite:
        raise Refusal(f"--output {output} exists; name another file, or add --overwrite")
    if Path(options.bundle).resolve() in output.resolve().parents or str(output) in options.images:
        raise Refusal(f"--output {output} is one of the images, or in the bundle; name another file")


def find_images(name: str) -> list[str]:
    """List the image files that a file, a folder or a glob names, sorted, as vitlab does. Raises ImageError."""
    if os.path.isfile(name):
        return [name]
    try:
        found = list_folder(os.fspath(Path(name))) if os.path.isdir(name) else glob.iglob(name, recursive=True)
        images = sorted((n for n in found if n.lower().endswith(EXTENSIONS) and not os.path.isdir(n)), key=os.fsencode)
    except OSError as error:
        raise ImageError(f"{error.filename} cannot be listed: {error.strerror}") from error
    if not images:
        raise ImageError(f"{name} names no image file; give a file, a folder or a glob such as 'photos/*.jpg'")
    return images


def list_folder(folder: str) -> Iterator[str]:
    """List the files at any depth below a folder that are not hidden."""
    for entry in os.scandir(folder):
        if not entry.name.startswith("."):
            yield from list_folder(entry.path) if entry.is_dir(follow_symlinks=False) else [entry.path]


def collect_lines(output: Path | None) -> IO[str]:
    """Open a file without a name in the folder of the output: a killed command leaves nothing of it."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
    return TemporaryFile("w+", newline="", encoding="utf-8", dir=output and output.parent)


def save_lines(lines: IO[str], path: Path) -> None:
    """Write what was collected to its file: whole, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            lines.seek(0)
            shutil.copyfileobj(lines, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def print_table(lines: IO[str]) -> None:
    """Print the first rows, each class with its probability."""
    lines.seek(0)
    head, *rows = list(islice(csv.reader(lines), 1 + MOST_LINES))
    for name, *cells in rows:
        classes = [f"{cells[i]} {float(cells[i + 1]):.1%}" for i, n in enumerate(head[1:]) if n.startswith("class_")]
        print(escape_letters("  ".join([name, *classes, *["probably none of these"] * (cells[-1] == "yes")])))
