"""Read pairs of texts from the user's own table: in each row an input text and a target text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vitlab.data.pools.pool import Pool, Source, TextPool
from vitlab.data.sources.tables import (
    Column,
    TableLayout,
    check_ending,
    check_filled,
    describe_row,
    find_split_rows,
    read_table,
)
from vitlab.data.sources.vocabularies import build_listed_vocabulary, check_texts, load_tokenizer_vocabulary
from vitlab.data.targets import Texts
from vitlab.errors import ConfigError, DataError
from vitlab.ranges import Natural
from vitlab.vocabulary import CharacterVocabulary, SpacedWordVocabulary, Vocabulary

PIECES = {"characters": CharacterVocabulary, "words": SpacedWordVocabulary}
FILES = {"file": "train", "val_file": "val", "test_file": "test"}  # the split of each, unless a column says it
FOUND = {"input": "input_vocabulary", "target": "vocabulary"}  # what is found, by its names in a run
MOST_REPEATED = 3  # repeated rows that are named


class Part(NamedTuple):
    """The rows of a file that are of one split, and their texts by the key of their column."""

    file: Path
    layout: TableLayout
    rows: np.ndarray
    texts: dict[str, list[str]]

    def place(self, i: int) -> str:
        return describe_row(self.file, int(self.rows[i]), self.layout)


class TextColumn:
    """The column that texts stand in, by its name or its number from 1, and what they are cut into: the pieces of a
    `tokenizer`, a file of that library with these `special_tokens`, or `pieces`: characters, or words with spaces
    between. `vocabulary` lists these; null: those that occur in the rows for training. Raises ValueError for two
    vocabularies."""

    def __init__(
        self,
        *,
        column: str | Natural,
        pieces: Literal["characters", "words"],
        vocabulary: str | None,
        tokenizer: str | None,
        special_tokens: list[str],
    ):
        if None not in (vocabulary, tokenizer):
            raise ValueError("vocabulary and tokenizer cannot both be set; leave out one of them")
        if len(special_tokens) != 3:
            raise ValueError("special_tokens needs three tokens: the ones that begin, end and pad a text")
        self.column, self.pieces, self.tokenizer, self.special_tokens = column, pieces, tokenizer, special_tokens
        self.given = vocabulary if vocabulary is None or pieces == "characters" else vocabulary.split()

    def vocabulary(self, key: str, parts: Mapping[str, Part]) -> tuple[Vocabulary, str | None]:
        """Choose the tokens of the texts of a side, which `key` names, and give what was found of them. Raises
        DataError or ConfigError, also for a text that they cannot write."""
        place = f"data.source.{key}"
        texts = {split: part.texts[key] for split, part in parts.items()}
        vocabulary: Vocabulary
        if self.tokenizer is not None:
            vocabulary = load_tokenizer_vocabulary(f"{place}.tokenizer", self.tokenizer, self.special_tokens, False)
            remedy, found = f"correct it, or set another {place}.tokenizer", None
        else:
            listed = build_listed_vocabulary(PIECES[self.pieces], f"{place}.vocabulary", self.given, texts["train"])
            vocabulary, found = listed, None if self.given is not None else listed.between.join(listed.pieces)
            whose = f"{place}.vocabulary" if found is None else "from the training rows"
            remedy = f"this vocabulary is {whose}; correct the text, or list all {self.pieces} in {place}.vocabulary"
        for split, own in texts.items():
            if split != "train" or found is None:
                check_texts(vocabulary, own, range(len(own)), parts[split].place, remedy)
        return vocabulary, found


class TextPairs(Source):
    """A pair for each row of `file` (.csv, .tsv or .parquet): a text to be read in the column of `input`, one to be
    written in that of `target`. `val_file` and `test_file` are of the same form, or `split_column` says which rows are
    train, val and test; else all are for training, and what is carved from them keeps rows that read the same together.

    `header`: whether the first row names the columns; null: it does where one is given by its name. `quoted`: whether
    quotes hold a value together, which may then have separators and line breaks in it.

    A text has one to be written of it, unless `allow_two_targets`, and stands in one split, unless `allow_overlap`.
    `found` holds what null has come to mean, and `repeated` says which rows stand there twice.
    """

    def __init__(
        self,
        *,
        file: str,
        val_file: str | None,
        test_file: str | None,
        header: bool | None,
        quoted: bool,
        input: TextColumn,
        target: TextColumn,
        split_column: str | Natural | None,
        allow_two_targets: bool,
        allow_overlap: bool,
    ):
        named_files = {"file": file, "val_file": val_file, "test_file": test_file}
        self.files = {key: check_ending(name, key) for key, name in named_files.items() if name is not None}
        if split_column is not None and len(self.files) > 1:
            raise ConfigError("data.source.split_column cannot be used with val_file or test_file; set it to null")
        self.sides = {"input": input, "target": target}
        columns = {f"{key}.column": side.column for key, side in self.sides.items()} | {"split_column": split_column}
        self.columns: dict[str, Column] = {key: column for key, column in columns.items() if column is not None}
        by_name = [key for key, column in self.columns.items() if isinstance(column, str)]
        if header is False and by_name:
            raise ConfigError(
                f"data.source.header=false: no row names columns; set data.source.{by_name[0]}=1, or 2, …"
            )
        self.layout = TableLayout(bool(by_name) if header is None else header, quoted, "data.source.quoted")
        self.found: dict[str, Any] = {"header": self.layout.header} if header is None else {}
        self.allow_two_targets, self.allow_overlap = allow_two_targets, allow_overlap
        self.repeated = ""

    def open(self) -> dict[str, Pool]:
        parts = self._parts()
        if "train" not in parts or not len(parts["train"].rows):
            raise DataError(f"{self.files['file']} lists no texts to train on")
        sources = self._sources(parts)
        vocabularies = {}
        for key, side in self.sides.items():
            vocabularies[key], found = side.vocabulary(key, parts)
            self.found |= {} if found is None else {FOUND[key]: found}
        pools: dict[str, Pool] = {}
        for split, part in parts.items():
            both = [Texts(part.texts[key], vocabularies[key], sources[split]) for key in self.sides]
            pools[split] = TextPool(*both)
        return pools

    def _parts(self) -> dict[str, Part]:
        """Read the rows of each split. Raises DataError for a file that cannot be read, and for an empty text."""
        parts: dict[str, Part] = {}
        for key, file in self.files.items():
            table = read_table(file, self.columns, self.layout, key)
            for side in self.sides:
                check_filled(file, self.columns[f"{side}.column"], table[f"{side}.column"], self.layout)
            rows = {FILES[key]: np.arange(len(table["input.column"]))}
            if "split_column" in table:
                rows = find_split_rows(file, self.columns["split_column"], table["split_column"], self.layout)
            for split, own in rows.items():
                texts = {side: [table[f"{side}.column"][row] for row in own] for side in self.sides}
                parts[split] = Part(file, self.layout, own, texts)
        return parts

    def _sources(self, parts: Mapping[str, Part]) -> dict[str, np.ndarray]:
        """Find the first row of the split that reads the same as each row, (n,) int64. Raises DataError for a text that
        stands in two splits, and for one with two to be written of it."""
        first: dict[str, tuple[str, int]] = {}
        sources, repeated = {}, []
        for split, part in parts.items():
            own = np.arange(len(part.rows))
            pairs: dict[tuple[str, str], int] = {}
            for i, (read, written) in enumerate(zip(*part.texts.values(), strict=True)):
                other, k = first.setdefault(read, (split, i))
                if (same := pairs.setdefault((read, written), i)) != i:
                    repeated.append((part, i, same))
                if other != split:
                    if not self.allow_overlap:
                        raise DataError(
                            f"{part.place(i)}: the {split} split reads {read!r}, and so does {other}, at "
                            f"{parts[other].place(k)}; remove one of them, or set data.source.allow_overlap=true"
                        )
                    continue
                own[i] = k
                if not self.allow_two_targets and part.texts["target"][k] != written:
                    raise DataError(
                        f"{part.place(i)}: of {read!r} {written!r} is to be written, and at {part.place(k)} "
                        f"{part.texts['target'][k]!r}; remove one, or set data.source.allow_two_targets=true"
                    )
            sources[split] = own
        self.repeated = sentence(repeated)
        return sources


def sentence(repeated: Sequence[tuple[Part, int, int]]) -> str:
    """Say how many rows repeat a pair, and where the first of them stand; empty where none does."""
    if not repeated:
        return ""
    places = ", ".join(f"{part.place(i)} = {part.place(k)}" for part, i, k in repeated[:MOST_REPEATED])
    return f"{len(repeated):,} row(s), which count again: {places}{', …' if len(repeated) > MOST_REPEATED else ''}"
