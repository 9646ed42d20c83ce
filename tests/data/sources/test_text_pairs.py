"""A table of pairs of texts: CSV, TSV and Parquet say the same, and what is wrong is named with its line."""

import pyarrow as pa
import pytest
from alphabets import letters
from pyarrow import parquet

from vitlab.data import Splits, TextColumn, TextPairs
from vitlab.errors import ConfigError, DataError
from vitlab.vocabulary import SpacedWordVocabulary, restore_vocabulary

PAIRS = [("a b", "1"), ("b, c", "2 3"), ("c\nd", 'say "4"')]


def column(column="input", **changes):
    settings = {"pieces": "characters", "vocabulary": None, "tokenizer": None}
    return TextColumn(**settings | {"column": column, "special_tokens": ["<s>", "</s>", "<pad>"]} | changes)


def pairs(file, input="input", target="target", **changes):
    settings = dict.fromkeys(("val_file", "test_file", "header", "split_column"))
    settings |= {"quoted": True, "allow_two_targets": False, "allow_overlap": False}
    sides = {
        key: side if isinstance(side, TextColumn) else column(side)
        for key, side in {"input": input, "target": target}.items()
    }
    changes = {key: str(value) if key.endswith("file") else value for key, value in changes.items()}
    return TextPairs(file=str(file), **settings | sides | changes)


@pytest.fixture
def table(tmp_path):
    """table(rows, name): writes rows below a header, each value in quotes where the file is text."""

    def write(rows=PAIRS, name="table.csv", head=("input", "target")):
        file = tmp_path / name
        if file.suffix == ".parquet":
            columns = {key: [row[place] for row in rows] for place, key in enumerate(head)}
            parquet.write_table(pa.table(columns), file)
            return file
        separator = "\t" if file.suffix.lower() == ".tsv" else ","
        quoted = [['"' + value.replace('"', '""') + '"' for value in row] for row in ([head, *rows] if head else rows)]
        file.write_text("".join(separator.join(row) + "\n" for row in quoted), encoding="utf-8")
        return file

    return write


def texts(pool):
    return list(zip(pool.read.values, pool.targets.values, strict=True))


# -- what is read


@pytest.mark.parametrize("name", ["table.csv", "table.tsv", "table.TSV", "table.parquet"])
def test_pairs_are_read_in_the_order_of_the_rows(table, name):
    source = pairs(table(name=name))
    ((split, pool),) = source.open().items()
    assert (split, texts(pool), len(pool)) == ("train", PAIRS, 3)
    assert pool.read.vocabulary.pieces == sorted(set("a bb, cc\nd"))
    assert source.found == {"header": True, "input_vocabulary": "\n ,abcd", "vocabulary": ' "1234asy'}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_columns_are_named_or_numbered_from_1(table, suffix):
    rows = [("x", *pair) for pair in PAIRS]
    file = table(rows, f"table{suffix}", head=("id", "input", "target"))
    swapped = [(target, read) for read, target in PAIRS]
    assert texts(pairs(file, "target", "input").open()["train"]) == swapped
    assert texts(pairs(file, 3, 2, header=True).open()["train"]) == swapped
    assert texts(pairs(file, 3, "input").open()["train"]) == swapped  # where one is named, the first row names them


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_without_a_header_the_first_row_is_a_pair(table, suffix):
    source = pairs(table(name=f"table{suffix}", head=None), 1, 2)
    assert texts(source.open()["train"]) == PAIRS
    assert source.found["header"] is False
    with pytest.raises(ConfigError, match=r"header=false: no row names columns; set data\.source\.target\.column=1"):
        pairs("t.csv", 1, "target", header=False)


def test_a_mark_at_the_beginning_of_a_file_is_none_of_its_letters(tmp_path):
    file = tmp_path / "table.tsv"
    file.write_text("eins\t1\nzwölf\t12\n\n", encoding="utf-8-sig")
    assert texts(pairs(file, 1, 2).open()["train"]) == [("eins", "1"), ("zwölf", "12")]


def test_quotes_may_be_letters(tmp_path):
    file = tmp_path / "table.tsv"
    file.write_text('"No," he said.\t1\n"\t2\n')
    assert texts(pairs(file, 1, 2, quoted=False).open()["train"]) == [('"No," he said.', "1"), ('"', "2")]
    with pytest.raises(DataError, match=r"table\.tsv, line 1: .*; or set data\.source\.quoted=false to read"):
        pairs(file, 1, 2).open()


# -- pieces


def test_words_stand_between_spaces_and_come_back(table):
    source = pairs(table([("forty-one  men", "1"), ("men", "2")]), column("input", pieces="words"))
    vocabulary = source.open()["train"].read.vocabulary
    assert source.found["input_vocabulary"] == "forty-one men"
    assert vocabulary.decode(vocabulary.encode("men forty-one")) == "men forty-one"
    assert restore_vocabulary(vocabulary.state()) == vocabulary == SpacedWordVocabulary(["forty-one", "men"])
    with pytest.raises(DataError, match="the word 'four' of the text 'four men' is not among the 2 of the vocabulary"):
        vocabulary.encode("four men")


def test_pieces_are_given_or_a_tokenizers(table, tmp_path):
    letters().save(str(tmp_path / "letters.json"))
    file = table([("abe", "one two"), ("b", "two")])
    given = column("target", pieces="words", vocabulary="two one three")
    source = pairs(file, column("input", tokenizer=str(tmp_path / "letters.json")), given)
    pool = source.open()["train"]
    assert pool.read.vocabulary.state()["kind"] == "tokenizer"
    assert pool.targets.vocabulary.pieces == ["two", "one", "three"]
    assert source.found == {"header": True}
    with pytest.raises(ValueError, match="vocabulary and tokenizer cannot both be set; leave out one of them"):
        column(vocabulary="ab", tokenizer="letters.json")
    with pytest.raises(ValueError, match="special_tokens needs three tokens"):
        column(tokenizer="letters.json", special_tokens=["<s>"])


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (
            {"vocabulary": "ab"},
            "line 2: the character ' ' of the text 'a b' is not among the 2 of the vocabulary, 'ab'; ",
        ),
        (
            {"vocabulary": "ab"},
            "this vocabulary is data.source.input.vocabulary; correct the text, or list all ch",
        ),
        ({"vocabulary": "a b c", "pieces": "words"}, "line 3: the word 'b,' of the text 'b, c' is not among the 3 of"),
        (
            {"tokenizer": "absent.json"},
            "data.source.input.tokenizer=absent.json: absent.json cannot be read as a tokenizer",
        ),
        (
            {"tokenizer": "letters.json"},
            "of the text 'a b' is in no piece of the tokenizer; correct it, or set another",
        ),
        ({"vocabulary": "aab"}, "data.source.input.vocabulary: a vocabulary needs single characters, each once"),
    ],
)
def test_a_text_that_the_pieces_cannot_write_is_refused(table, tmp_path, refused, monkeypatch, own, sentence):
    monkeypatch.chdir(tmp_path)
    letters().save("letters.json")
    refused(pairs(table(), column(**own)), sentence, error=(DataError, ConfigError))


# -- splits


def test_rows_that_read_the_same_are_in_one_split(table):
    rows = [(f"text {i % 20}", str(i)) for i in range(100)]
    parts = Splits(val_fraction=0.1, test_fraction=0.2, labels_per_class=None).divide(
        pairs(table(rows), allow_two_targets=True).open(), 0, []
    )
    read = {split: set(pool.read.values[indices]) for split, (pool, indices) in parts.items()}
    assert {split: len(some) for split, some in read.items()} == {"train": 14, "val": 2, "test": 4}
    assert set.union(*read.values()) == {f"text {i}" for i in range(20)}
    assert sum(len(indices) for _, indices in parts.values()) == 100


def test_splits_come_from_files_or_from_a_column(table):
    rows = [(*pair, split) for pair, split in zip(PAIRS, ("train", "test", "val"), strict=True)]
    own = table(rows, head=("input", "target", "split"))
    target = column("target", vocabulary=' "1234asy')
    read = column("input", vocabulary="\n ,abcd")
    expected = {"train": PAIRS[:1], "val": PAIRS[2:], "test": PAIRS[1:2]}
    found = pairs(own, read, target, split_column="split").open()
    assert {split: texts(pool) for split, pool in found.items()} == expected
    files = [table([row], name) for row, name in zip(PAIRS, ("a.csv", "b.tsv", "c.parquet"), strict=True)]
    found = pairs(files[0], read, target, test_file=files[1], val_file=files[2]).open()
    assert {split: texts(pool) for split, pool in found.items()} == expected
    with pytest.raises(ConfigError, match="split_column cannot be used with val_file or test_file"):
        pairs(own, split_column="split", val_file=files[1])


def test_the_fingerprint_is_of_the_texts(table):
    prints = [pairs(table(rows)).open()["train"].fingerprint for rows in (PAIRS, PAIRS, PAIRS[::-1])]
    assert prints[0] == prints[1] != prints[2]


# -- what is wrong


def test_rows_that_repeat_a_pair_are_named_and_stay(table):
    source = pairs(table([("a", "1"), ("b", "2"), ("a", "1"), ("a", "1")], "table.tsv"))
    pool = source.open()["train"]
    assert len(pool) == 4
    assert pool.targets.images.tolist() == [0, 1, 0, 0]
    file = source.files["file"]
    places = [f"{file}, line {line} = {file}, line 2" for line in (4, 5)]
    assert source.repeated == f"2 row(s), which count again: {', '.join(places)}"
    again = pairs(table([("a", "1"), ("b", "2")]))
    again.open()
    assert again.repeated == ""


@pytest.mark.parametrize("name", ["table.csv", "table.tsv", "table.parquet"])
def test_two_texts_to_be_written_of_one_are_refused(table, refused, name):
    place = "table.parquet, row 3" if name.endswith("parquet") else f"{name}, line 4"
    file = table([("a", "1"), ("b", "2"), ("a", "3")], name)
    refused(
        pairs(file), f"{place}: of 'a' '3' is to be written, and at ", "'1'; remove one, or set data.source.allow_tw"
    )
    assert len(pairs(file, allow_two_targets=True).open()["train"]) == 3


def test_a_text_in_two_splits_is_refused(table, refused):
    file, other = table([("a", "1"), ("b", "2")]), table([("b", "1")], "val.csv")
    refused(pairs(file, val_file=other), "val.csv, line 2: the val split reads 'b', and so does train, at", "line 3;")
    pools = pairs(file, val_file=other, allow_overlap=True).open()
    assert texts(pools["val"]) == [("b", "1")]


@pytest.mark.parametrize(
    ("content", "changes", "words"),
    [
        ("input,target\na,1\n,2\n", {}, ["line 3: the input is empty; fill it, or remove the row"]),
        ("a,1\nb, \n", {"input": 1, "target": 2}, ["line 2: the text in column 2 is empty"]),
        ("input,target\na,1,2\n", {}, ["line 2: 3 values for 2 columns; quote the commas"]),
        ("input,target\na,1,2\n", {"quoted": False}, ["line 2: 3 values for 2 columns; remove the commas"]),
        ('input,target\na,"1\nb,2\n', {}, ["line 2", "close each quote at the end of its value"]),
        ("in,out\na,1\n", {}, ["data.source.input.column: ", "has no column input; it has in, out"]),
        ("input,input,target\na,b,1\n", {}, ["data.source.input.column: ", "has 2 columns input"]),
        ("a,1\n", {"input": 1, "target": 3}, ["data.source.target.column: ", "has no column 3; it has 2"]),
        ("a,1\n", {"input": 0, "target": 1}, ["data.source.input.column: ", "has no column 0; it has 2"]),
        ("", {}, ["has no column input; it has none"]),
        ("input,target\n", {}, ["table.csv lists no texts to train on"]),
        (
            "input,target,s\na,1,dev\n",
            {"split_column": "s"},
            ["line 2: the s is 'dev', but must be one of: train, val, test"],
        ),
        ("input,target,s\na,1,val\n", {"split_column": "s"}, ["table.csv lists no texts to train on"]),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(tmp_path, refused, content, changes, words):
    file = tmp_path / "table.csv"
    file.write_text(content)
    refused(pairs(file, **changes), *words)


def test_other_bytes_than_utf_8_are_refused_with_their_line(tmp_path, refused):
    file = tmp_path / "table.tsv"
    file.write_bytes("input\ttarget\neins\t1\nzwölf\t12\n".encode("latin-1"))
    refused(pairs(file), "table.tsv, line 3: the input is not UTF-8 text; save the table in UTF-8")
    file.write_bytes("input\ttarget\n".encode("utf-16"))
    refused(pairs(file), "line 1, holds a NUL byte, as UTF-16 does")


def test_files_that_are_none_are_refused(tmp_path, table, refused):
    refused(pairs(tmp_path / "absent.csv"), "data.source.file: there is no file", "give a CSV, TSV or Parquet file")
    refused(pairs(table(), test_file=tmp_path / "absent.csv"), "data.source.test_file: there is no file")
    with pytest.raises(ConfigError, match=r"data\.source\.val_file pairs\.txt is neither \.csv, \.tsv nor \.parquet"):
        pairs(tmp_path / "table.csv", val_file="pairs.txt")


def test_a_split_without_texts_is_refused_in_words_of_texts(table):
    carved = Splits(val_fraction=0.0, test_fraction=0.2, labels_per_class=None)
    with pytest.raises(DataError, match=r"the val split holds no text; set data\.split\.val_fraction=0\.1"):
        carved.divide(pairs(table([(str(i), "1") for i in range(10)])).open(), 0, [])
    with pytest.raises(DataError, match="2 texts are too few for the splits train, val and test; add texts"):
        carved.divide(pairs(table([("a", "1"), ("b", "1")])).open(), 0, [])
    empty = table([], "val.csv")
    with pytest.raises(DataError, match="the val split holds no text; see its file"):
        carved.divide(pairs(table(PAIRS[:2]), val_file=empty).open(), 0, [])
