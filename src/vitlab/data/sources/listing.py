"""Images named in a table: a CSV, TSV or Parquet file with a path and a label or text in each row, and perhaps a
split."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.labels import check_distinct, number_labels
from vitlab.data.pools.pool import Pool, Source
from vitlab.data.sources.tables import check_ending, check_filled, describe_row, find_split_rows, read_table
from vitlab.data.sources.vocabularies import build_listed_vocabulary, check_texts, load_tokenizer_vocabulary
from vitlab.data.targets import Answers, OneClass, SeveralTexts, Targets, Texts, multi_hot
from vitlab.errors import ConfigError, DataError
from vitlab.vocabulary import CharacterVocabulary

OUTSIDE = (os.sep, os.path.join(os.pardir, ""))
LABEL = "label"  # the column that says it, unless another is named


class Listing(Source):
    """One image for each row of `file` (.csv, .tsv or .parquet); the columns are named by `path_column`, `label_column`
    and `split_column` (null: every row is for training). Relative paths lie below `root` (null: the folder of the
    table), and no path leads out of it, unless `allow_outside`. A file that stands in several rows has the same label
    in all of them, unless `allow_two_labels`.

    Labels are names or whole numbers; `class_names` null: those of the training rows, sorted, numbers by their value.
    Given names are what the labels say, or what whole numbers count from 0. With a `label_separator` an image may have
    several classes, which stand in its label with that between them, or none. A file that is missing is met when it is
    read. `in_chans` is None: files may differ, so data.images.mode says what they are converted to.

    `text_column` in place of `label_column`: a text of each image, which is to be written or compared with it, in the
    pieces of a `tokenizer`, a file of that library with these `special_tokens`, or in `characters`; null: those that
    occur in the rows for training, which `found` then holds. `begin_token`: the one that begins a text is read with it.
    `question_column` beside it: a question about the image of each row, which the text answers.
    """

    in_chans = None
    found: Mapping[str, Any] = {}

    def __init__(
        self,
        *,
        file: str,
        root: str | None,
        path_column: str,
        label_column: str | None,
        label_separator: str | None,
        text_column: str | None,
        question_column: str | None,
        characters: str | None,
        tokenizer: str | None,
        special_tokens: list[str],
        begin_token: bool,
        split_column: str | None,
        class_names: list[str] | None,
        allow_outside: bool,
        allow_two_labels: bool,
    ):
        self.file = check_ending(file)
        self.root = str(self.file.parent) if root is None else root
        of_labels = {"label_column": label_column, "label_separator": label_separator, "class_names": class_names}
        of_texts = {"question_column": question_column, "characters": characters, "tokenizer": tokenizer}
        check_kind(text_column, of_labels, of_texts)
        check_tokens(characters, tokenizer, special_tokens, begin_token)
        self.characters, self.tokenizer, self.special_tokens = characters, tokenizer, special_tokens
        self.begin_token = begin_token
        self.told, column = ("label", label_column or LABEL) if text_column is None else ("text", text_column)
        columns = {"path_column": path_column, f"{self.told}_column": column, "split_column": split_column}
        columns["question_column"] = question_column
        self.columns = {key: column for key, column in columns.items() if column is not None}
        self.separator = label_separator
        self.allow_outside = allow_outside
        self.allow_two_labels = allow_two_labels
        check_distinct(class_names)
        self.given_names = class_names

    def open(self) -> dict[str, Pool]:
        table = read_table(self.file, self.columns)
        key = f"{self.told}_column"
        paths, told = table["path_column"], table[key]
        questions = table.get("question_column")
        for needed in ("path_column", *([key] if self.separator is None else []), "question_column"):
            if needed in table:
                check_filled(self.file, self.columns[needed], table[needed])
        splits = {"train": np.arange(len(paths))}
        if "split_column" in table:
            splits = find_split_rows(self.file, self.columns["split_column"], table["split_column"])
        if not len(splits.get("train", [])):
            raise DataError(f"{self.file} lists no image to train on")
        names = [self._names(words) for words in told]
        images = self._images(paths, names, questions or [""] * len(paths))
        targets = self._texts(splits, told, questions, images) if self.told == "text" else self._classes(splits, names)
        return {
            split: FilePool.from_names([paths[row] for row in rows], targets[split], self.root)
            for split, rows in splits.items()
        }

    def _classes(self, splits: Mapping[str, np.ndarray], names: Sequence[tuple[str, ...]]) -> dict[str, Targets]:
        """Number the classes of each row."""
        self.class_names, number = number_labels(
            (name for row in splits["train"] for name in names[row]), self.given_names
        )
        targets: dict[str, Targets] = {}
        for split, rows in splits.items():
            try:
                classes = [[number[name] for name in names[row]] for row in rows]
            except KeyError:
                row, unknown = next((row, name) for row in rows for name in names[row] if name not in number)
                known = "data.source.class_names" if self.given_names else "the training rows"
                raise DataError(f"{describe_row(self.file, row)}: label '{unknown}' is not one of {known}") from None
            targets[split] = multi_hot(classes, len(self.class_names))
            if self.separator is None:
                targets[split] = OneClass(np.array(classes, np.int64)[:, 0])
        return targets

    def _texts(
        self,
        splits: Mapping[str, np.ndarray],
        texts: Sequence[str],
        questions: Sequence[str] | None,
        images: np.ndarray,
    ) -> dict[str, Targets]:
        """Say in which tokens the texts are written, and the questions, and refuse one that they cannot write."""
        both = [texts] if questions is None else [questions, texts]
        written = (some[row] for some in both for row in splits["train"])
        vocabulary = (
            build_listed_vocabulary(CharacterVocabulary, "data.source.characters", self.characters, written)
            if self.tokenizer is None
            else load_tokenizer_vocabulary(
                "data.source.tokenizer", self.tokenizer, self.special_tokens, self.begin_token
            )
        )
        if isinstance(vocabulary, CharacterVocabulary) and self.characters is None:
            self.found = {"characters": "".join(vocabulary.pieces)}
        for some in both:
            rows = np.concatenate(list(splits.values()))
            check_texts(vocabulary, some, rows, lambda row: describe_row(self.file, row), self._remedy())
        kind = SeveralTexts if len(np.unique(images)) < len(images) else Texts
        targets: dict[str, Targets] = {}
        for split, rows in splits.items():
            own = [texts[row] for row in rows]
            if questions is None:
                targets[split] = kind(own, vocabulary, images[rows])
            else:
                targets[split] = Answers(own, vocabulary, [questions[row] for row in rows], {}, images[rows])
        return targets

    def _remedy(self) -> str:
        """Say what could be done about a text that cannot be written."""
        if self.tokenizer is not None:
            return "correct it, or take another data.source.tokenizer"
        whose = "from the training rows" if self.found else "data.source.characters"
        return f"this vocabulary is {whose}; correct the text, or list all characters in data.source.characters"

    def _names(self, label: str) -> tuple[str, ...]:
        """List the classes that a label names."""
        if self.separator is None:
            return (label,)
        return tuple(name for part in label.split(self.separator) if (name := part.strip()))

    def _images(self, paths: Sequence[str], names: Sequence[tuple[str, ...]], questions: Sequence[str]) -> np.ndarray:
        """Find the first row of the file in each row, (n,) int64. Raises DataError for a path that leads out of the
        root, and for a file that has two labels, or two answers to one question."""
        roots = [os.path.join(root, "") for root in (os.path.abspath(self.root), os.path.realpath(self.root))]
        rows: dict[str, int] = {}
        asked: dict[tuple[str, str], int] = {}
        images = np.empty(len(paths), np.int64)
        for row, path in enumerate(paths):
            place = os.path.normpath(path)
            if place.startswith(os.sep):
                place = next((place.removeprefix(root) for root in roots if place.startswith(root)), place)
            if not self.allow_outside and (place.startswith(OUTSIDE) or place == os.pardir):
                raise DataError(
                    f"{describe_row(self.file, row)}: {path} lies outside of {os.path.abspath(self.root)}; set "
                    "data.source.root to a folder that holds all images, or data.source.allow_outside=true"
                )
            images[row] = rows.setdefault(place, row)
            earlier = asked.setdefault((place, questions[row]), row)
            if earlier != row and not self.allow_two_labels and set(names[earlier]) != set(names[row]):
                one, other = (", ".join(names[k]) or "none" for k in (row, earlier))
                about = f", to {question!r}" if (question := questions[row]) else ""
                raise DataError(
                    f"{describe_row(self.file, row)}: {path} has the {self.told} {one}, and {other} at "
                    f"{describe_row(self.file, earlier)}{about}; "
                    "remove one, or set data.source.allow_two_labels=true"
                )
        return images


def check_kind(text_column: str | None, of_labels: Mapping[str, Any], of_texts: Mapping[str, Any]) -> None:
    """Raise ConfigError for keys of labels beside a column of texts, for keys of texts without it, and for an empty
    separator."""
    given = [key for key, value in (of_labels if text_column is not None else of_texts).items() if value is not None]
    if text_column is not None and given:
        raise ConfigError(
            f"data.source.text_column={text_column} is for texts, but data.source."
            f"{given[0]} is for classes; set one of them to null"
        )
    if given and text_column is None:
        raise ConfigError(f"data.source.{given[0]} is for texts; set data.source.text_column to their column")
    if of_labels["label_separator"] == "":
        raise ConfigError(
            "data.source.label_separator is empty; set it to the separator of two labels, such as ';', or to null"
        )


def check_tokens(
    characters: str | None, tokenizer: str | None, special_tokens: Sequence[str], begin_token: bool
) -> None:
    """Raise ConfigError for two vocabularies, and for special tokens that do not fit them."""
    if None not in (characters, tokenizer):
        raise ConfigError("data.source.characters and data.source.tokenizer cannot both be set; leave out one of them")
    if len(special_tokens) != 3:
        raise ConfigError("data.source.special_tokens needs three tokens: the ones that begin, end and pad a text")
    if begin_token and tokenizer is None:
        raise ConfigError("data.source.begin_token=true needs data.source.tokenizer")
