"""A table of paths and labels: CSV and Parquet say the same, and what is wrong is named with its line."""

import pickle
import re
import sys

import numpy as np
import pyarrow as pa
import pytest
from alphabets import letters
from pyarrow import parquet

from vitlab.data import Listing
from vitlab.data.targets import Texts
from vitlab.errors import ConfigError, DataError

SUFFIXES = [".csv", ".tsv", ".parquet"]
LETTERS = letters()


def listing(file, **changes):
    settings = {
        "root": None,
        "path_column": "path",
        "label_column": None,
        "label_separator": None,
        "text_column": None,
        "question_column": None,
        "characters": None,
        "tokenizer": None,
        "special_tokens": ["<s>", "</s>", "<pad>"],
        "begin_token": False,
        "split_column": None,
        "class_names": None,
        "allow_outside": False,
        "allow_two_labels": False,
    }
    return Listing(file=str(file), **settings | changes)


def test_two_classes_have_two_names():
    with pytest.raises(ConfigError, match="holds 'cat' 2 times"):
        listing("table.csv", class_names=["cat", "dog", "cat"])


@pytest.fixture
def table(tmp_path):
    """table(suffix, column=values, ...): writes a table."""

    def write(suffix=".csv", **columns):
        file = tmp_path / f"table{suffix}"
        if suffix == ".parquet":
            parquet.write_table(pa.table(columns), file)
        else:
            rows = zip(*columns.values(), strict=True)
            lines = [columns, *(["" if value is None else str(value) for value in row] for row in rows)]
            separator = "\t" if suffix == ".tsv" else ","
            file.write_text("".join(separator.join(line) + "\n" for line in lines))
        return file

    return write


PATHS = ["b/2.png", "a/1.png", "a/3.png"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_images_are_read_in_the_order_of_the_rows(tmp_path, table, picture, suffix):
    for seed, path in enumerate(PATHS):
        picture(tmp_path / path, seed)
    source = listing(table(suffix, note=[1, 2, 3], label=["dog", "cat", "dog"], path=PATHS))
    pools = source.open()
    assert list(pools) == ["train"]
    assert source.class_names == ["cat", "dog"]
    assert pools["train"].targets.tolist() == [1, 0, 1]
    copy = pickle.loads(pickle.dumps(pools["train"]))
    assert [copy.load(i) for i in range(3)] == [(tmp_path / path).read_bytes() for path in PATHS]
    assert copy.name(1) == str(tmp_path / "a/1.png")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_go_to_their_splits(table, suffix):
    file = table(suffix, path=["1", "2", "3", "4"], label=[10, 9, 9, 9], split=["train", "test", "train", "val"])
    source = listing(file, split_column="split")
    pools = source.open()
    assert source.class_names == ["9", "10"]  # as numbers, not as text
    assert {split: pool.targets.tolist() for split, pool in pools.items()} == {"train": [1, 0], "val": [0], "test": [0]}


def test_relative_paths_begin_at_root(table, tmp_path):
    file = table(path=["a.png", "/b.png"], label=["x", "y"])
    pool = listing(file, root="/somewhere", allow_outside=True).open()["train"]
    assert [pool.name(0), pool.name(1)] == ["/somewhere/a.png", "/b.png"]


def test_class_names_can_be_given(table):
    words = listing(table(path=["1", "2"], label=["dog", "cat"]), class_names=["dog", "emu", "cat"])
    assert words.open()["train"].targets.tolist() == [0, 2]
    numbers = listing(table(path=["1", "2"], label=[2, 0]), class_names=["dog", "emu", "cat"])
    assert numbers.open()["train"].targets.tolist() == [2, 0]
    assert numbers.class_names == words.class_names == ["dog", "emu", "cat"]


def test_quotes_blank_lines_and_bytes_that_are_no_utf_8(tmp_path):
    file = tmp_path / "table.csv"
    file.write_bytes(b'\xef\xbb\xbfpath,label\r\n"a,b.png","two\nlines"\r\n\r\n\xff.png,cat\r\n')
    source = listing(file)
    pool = source.open()["train"]
    assert source.class_names == ["cat", "two\nlines"]
    (tmp_path / "a,b.png").write_bytes(b"1")
    (tmp_path / "\udcff.png").write_bytes(b"2")
    assert [pool.load(0), pool.load(1)] == [b"1", b"2"]


def test_a_missing_image_is_met_when_it_is_read(table):
    pool = listing(table(path=["gone.png"], label=["cat"])).open()["train"]
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        pool.load(0)


def test_the_fingerprint_changes_with_a_path_a_label_and_the_order(table):
    def fingerprint(path, label):
        return listing(table(path=path, label=label)).open()["train"].fingerprint

    seen = [fingerprint(["a", "bc"], ["x", "y"])]
    assert fingerprint(["a", "bc"], ["x", "y"]) == seen[0]
    seen += [fingerprint(["a", "b"], ["x", "y"]), fingerprint(["ab", "c"], ["x", "y"])]
    seen += [fingerprint(["a", "bc"], ["y", "x"]), fingerprint(["bc", "a"], ["y", "x"])]
    assert len(set(seen)) == len(seen)


# -- what is refused


def test_a_missing_file_is_refused(tmp_path, refused):
    refused(listing(tmp_path / "table.csv"), "data.source.file", tmp_path / "table.csv")


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"table\.xlsx is neither \.csv, \.tsv nor \.parquet"):
        listing(tmp_path / "table.xlsx")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("key", ["path_column", "label_column", "split_column"])
def test_a_missing_column_is_refused_with_those_that_there_are(table, suffix, key, refused):
    file = table(suffix, path=["1"], label=["cat"], fold=["train"])
    refused(listing(file, **{key: "other"}), f"data.source.{key}", "other", "path, label, fold")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("column", ["path", "label"])
def test_an_empty_value_is_refused_with_its_line(table, suffix, column, refused):
    columns = {"path": ["1", "2", "3"], "label": ["cat", "cat", "cat"]}
    columns[column][1] = None
    line = "line 3" if suffix != ".parquet" else "row 2"
    refused(listing(table(suffix, **columns)), line, f"the {column} is empty")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_unknown_split_is_refused(table, suffix, refused):
    file = table(suffix, path=["1", "2"], label=["cat", "cat"], split=["train", "valid"])
    line = "line 3" if suffix != ".parquet" else "row 2"
    refused(listing(file, split_column="split"), line, "'valid'", "train, val, test")


def test_a_label_that_training_does_not_have_is_refused(table, refused):
    file = table(path=["1", "2"], label=["cat", "dog"], split=["train", "test"])
    refused(listing(file, split_column="split"), "line 3", "'dog'", "the training rows")
    refused(listing(file, class_names=["cat", "emu"]), "line 3", "'dog'", "data.source.class_names")
    refused(listing(table(path=["1"], label=[2]), class_names=["cat", "emu"]), "line 2", "'2'")


def test_a_table_without_training_rows_is_refused(table, refused):
    refused(listing(table(path=[], label=[])), "no image to train on")
    refused(listing(table(path=["1"], label=["a"], split=["test"]), split_column="split"), "no image to train on")


def test_a_row_of_another_length_is_refused(tmp_path, refused):
    (tmp_path / "table.csv").write_text("path,label\n1,cat\n2,cat,dog\n")
    refused(listing(tmp_path / "table.csv"), "line 3", "3 values for 2 columns")


def test_labels_that_are_no_whole_numbers_are_refused(table, refused):
    refused(listing(table(".parquet", path=["1"], label=[0.5])), "column label holds 0.5", "whole numbers")


def test_a_damaged_file_is_refused(tmp_path, refused):
    (tmp_path / "table.parquet").write_bytes(b"no parquet")
    refused(listing(tmp_path / "table.parquet"), tmp_path / "table.parquet", "cannot be read as parquet")
    (tmp_path / "empty.csv").write_bytes(b"")
    refused(listing(tmp_path / "empty.csv"), "no column path", "none")


def test_parquet_without_pyarrow_is_refused(table, monkeypatch):
    file = table(".parquet", path=["1"], label=["cat"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        listing(file).open()


def test_a_listing_of_many_rows_has_no_list_of_them(table):
    file = table(path=[f"{i:05d}.png" for i in range(20_000)], label=["cat"] * 20_000)
    pool = listing(file).open()["train"]
    assert len(pickle.dumps(pool)) < 20_000 * 26 + 1000  # 9 bytes of a name, 8 of its place, 8 of its class
    assert pool.name(19_999).endswith("19999.png")


def test_a_listing_is_a_data_error_not_a_crash_when_its_path_is_a_folder(tmp_path):
    (tmp_path / "table.csv").mkdir()
    with pytest.raises(DataError, match="there is no file"):
        listing(tmp_path / "table.csv").open()


# -- several classes an image


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_row_may_name_several_classes_or_none(table, suffix):
    file = table(suffix, path=["1", "2", "3", "4"], label=["dog; cat", "", "cat;", "emu;dog;dog"])
    source = listing(file, label_separator=";")
    assert source.open()["train"].targets.tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 1]]
    assert source.class_names == ["cat", "dog", "emu"]


def test_one_class_in_each_row_is_several_all_the_same(table):
    """The separator says what the labels are, not how many there happen to be."""
    source = listing(table(path=["1", "2"], label=["10", "9"]), label_separator=" ")
    assert source.open()["train"].targets.tolist() == [[0, 1], [1, 0]]
    assert source.class_names == ["9", "10"]


def test_one_of_several_labels_that_is_unknown_is_refused(table, refused):
    file = table(path=["1", "2"], label=["cat|dog", "cat|cow"], split=["train", "val"])
    refused(listing(file, label_separator="|", split_column="split"), "line 3", "'cow'", "the training rows")
    refused(listing(file, label_separator="|", class_names=["dog", "cow"]), "line 2", "'cat'")
    with pytest.raises(ConfigError, match=r"data\.source\.label_separator is empty"):
        listing(file, label_separator="")


def test_without_a_separator_a_label_is_one_name(table):
    source = listing(table(path=["1", "2"], label=["cat;dog", "cat"]))
    assert source.open()["train"].targets.tolist() == [1, 0]
    assert source.class_names == ["cat", "cat;dog"]


# -- a text of each image


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_holds_the_text_of_each_image(table, suffix):
    file = table(suffix, path=["1", "2", "3"], text=["b a", "15", "ab"], split=["train", "train", "val"])
    source = listing(file, text_column="text", split_column="split")
    pools = source.open()
    assert {split: pool.targets.tolist() for split, pool in pools.items()} == {"train": ["b a", "15"], "val": ["ab"]}
    assert pools["train"].targets.vocabulary.pieces == pools["val"].targets.vocabulary.pieces == list(" 15ab")
    assert source.found == {"characters": " 15ab"}
    assert source.class_names == []
    given = listing(file, text_column="text", split_column="split", characters="xba 51")
    assert given.open()["val"].targets.vocabulary.pieces == list("xba 51")
    assert given.found == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_image_may_have_several_texts(table, suffix):
    paths, texts = ["1", "2", "./1", "3", "2"], ["a", "b", "ab", "b", "b"]
    file = table(suffix, path=paths, text=texts, split=["train", "train", "train", "val", "train"])
    pools = listing(file, text_column="text", split_column="split", allow_two_labels=True).open()
    assert pools["train"].targets.tolist() == ["a", "b", "ab", "b"]
    assert pools["train"].targets.images.tolist() == [0, 1, 0, 1]
    assert pools["val"].targets.images.tolist() == [3]
    one = table(suffix, path=["1", "2"], text=["a", "a"])
    assert type(listing(one, text_column="text").open()["train"].targets) is Texts


def test_texts_may_be_in_the_pieces_of_a_tokenizer(table, tmp_path):
    LETTERS.save(str(tmp_path / "letters.json"))
    file = table(path=["1", "2"], text=["abc", "de"])
    source = listing(file, text_column="text", tokenizer=str(tmp_path / "letters.json"))
    pool = pickle.loads(pickle.dumps(source.open()["train"]))  # as worker processes get it
    assert pool.targets.collate().codes.tolist() == [[4, 5, 6, 2], [7, 8, 2, 1]]
    assert source.found == {}
    begun = listing(file, text_column="text", tokenizer=str(tmp_path / "letters.json"), begin_token=True)
    assert begun.open()["train"].targets.collate().codes.tolist() == [[0, 4, 5, 6, 2], [0, 7, 8, 2, 1]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text_column": "text", "label_column": "label"}, "data.source.label_column is for classes"),
        ({"text_column": "text", "label_separator": ";"}, "data.source.label_separator is for classes"),
        ({"text_column": "text", "class_names": ["a"]}, "data.source.class_names is for classes"),
        ({"characters": "ab"}, "data.source.characters is for texts; set data.source.text_column"),
        ({"tokenizer": "x.json"}, "data.source.tokenizer is for texts; set data.source.text_column"),
        (
            {"text_column": "text", "characters": "ab", "tokenizer": "x.json"},
            "cannot both be set; leave out one of them",
        ),
        ({"text_column": "text", "begin_token": True}, "data.source.begin_token=true needs data.source.tokenizer"),
        ({"text_column": "text", "special_tokens": ["<s>"]}, "data.source.special_tokens needs three tokens"),
    ],
)
def test_texts_and_labels_do_not_mix(changes, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        listing("table.csv", **changes)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_text_that_cannot_be_is_refused_with_its_line(table, suffix, refused, tmp_path):
    columns = {"path": ["1", "2"], "text": ["ab", "cab"], "split": ["train", "test"]}
    told = {"text_column": "text", "split_column": "split"}
    line = "line 3" if suffix != ".parquet" else "row 2"
    missing = "data.source.text_column", "no column words", "it has path, text, split"
    refused(listing(table(suffix, **columns), text_column="words"), *missing)
    for empty in ("", "  "):
        refused(listing(table(suffix, **columns | {"text": ["ab", empty]}), **told), line, "the text is empty")
    words = "the character 'c' of the text 'cab' is not among the 2 of the vocabulary, 'ab'"
    refused(listing(table(suffix, **columns), **told), line, words, "from the training rows; correct the text, or")
    refused(listing(table(suffix, **columns), **told, characters="ba"), line, "is data.source.characters; correct")
    LETTERS.save(str(tmp_path / "letters.json"))
    named = {"tokenizer": str(tmp_path / "letters.json")}
    refused(listing(table(suffix, **columns | {"text": ["ab", "aé"]}), **told, **named), line, "'é' of the text 'aé'")
    twice = {"path": ["1", "1"], "text": ["ab", "ba"]}
    refused(listing(table(suffix, **twice), text_column="text"), "1 has the text ba, and ab at")
    assert listing(table(suffix, **twice), text_column="text", allow_two_labels=True).open()


def test_quotes_that_are_not_closed_are_refused_with_the_line_where_they_begin(table, refused):
    file = table(path=["1", "2", "3"], label=["a", '"b', "c"])
    refused(listing(file), "table.csv, line 3: unexpected end of data; close each quote at the end of its value")
    file = table(path=["1", "2", "3"], label=["a", '"b" or c', "c"])
    refused(listing(file), "table.csv, line 3: ',' expected after '\"'; close each quote at the end of its value, ")


@pytest.mark.parametrize("column", ["label", "text", "question"])
def test_what_is_no_utf_8_is_refused_with_its_line(table, refused, column):
    columns = {"path": ["1", "2"], "text": ["ab", "ba"], "question": ["a", "b"], "label": ["a", "b"]}
    file = table(**columns | {column: ["a", "r\xf6d"]})
    file.write_bytes(file.read_text().encode("latin-1"))
    told = {} if column == "label" else {"text_column": "text", "question_column": "question"}
    refused(listing(file, **told), f"table.csv, line 3: the {column} is not UTF-8 text; save the table in UTF-8")


def test_each_image_is_asked_what_stands_beside_it(table, refused):
    columns = {"path": ["1", "2", "1", "1"], "q": ["who", "who", "why", "who"], "text": ["a", "b", "c", "a"]}
    told = {"text_column": "text", "question_column": "q"}
    source = listing(table(**columns), **told)
    targets = source.open()["train"].targets
    assert targets.tolist() == ["a", "b", "c", "a"]
    assert [targets.get_question(i) for i in range(4)] == columns["q"]
    assert targets.images.tolist() == [0, 1, 0, 0]
    assert targets.num_images == 2
    assert targets[2:].collate().groups.shape == (2, 0)
    assert source.found == {"characters": "abchowy"}
    parts = targets.divide({"train": 0.5, "val": 0.5}, np.random.RandomState(0))
    assert sorted(map(list, parts.values())) == [[0, 2, 3], [1]]
    other = columns | {"text": ["a", "b", "c", "b"]}
    refused(listing(table(**other), **told), "1 has the text b, and a at", "to 'who'; remove one, or set data.source")


def test_a_tokenizer_that_is_none_is_refused(table, tmp_path, refused):
    told = {"file": table(path=["1"], text=["ab"]), "text_column": "text"}
    refused(listing(**told, tokenizer="gone.json"), "data.source.tokenizer=gone.json", "No such file")
    (tmp_path / "other.json").write_text("{}")
    other = str(tmp_path / "other.json")
    refused(listing(**told, tokenizer=other), f"data.source.tokenizer={other}", "not a tokenizer.json")
    LETTERS.save(str(tmp_path / "letters.json"))
    own = {"tokenizer": str(tmp_path / "letters.json"), "special_tokens": ["[CLS]", "</s>", "<pad>"]}
    refused(listing(**told, **own), "has no token '[CLS]'")
    refused(listing(**told, characters="aab"), "characters: a vocabulary needs single characters", error=ConfigError)
