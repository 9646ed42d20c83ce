"""Pipes, devices, links, bombs and labels beyond all bounds: refused in one sentence, and nothing waits or fills up."""

import io
import json
import os
import shutil
import socket
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import image_folder
from PIL import Image
from pyarrow import parquet

from vitlab.atomic_files import compute_digest
from vitlab.data import Arrays, Folder, Listing, Shards
from vitlab.data.shards.index import map_index, save_columns
from vitlab.errors import DataError

pytestmark = pytest.mark.timeout(60)

FOLDER = ["data=folder", "data.source.root=images", "data.source.index_root=null"]
LISTING = ["data=listing", "data.source.file=table.csv"]
SIZES = ["data.num_classes=2", "data.image_size=8", "data.loading.num_workers=0", "crop=whole"]
FROZEN = Path(__file__).parents[1] / "earlier_version" / "run"
HUGE = 10**12


def refused(run, *words):
    """Status 3, and one sentence on stderr that holds the words."""
    lines = [line for line in run.err.splitlines() if line.strip()]
    assert run.status == 3, run.err
    assert len(lines) == 1, run.err
    assert lines[0].startswith("DataError: ")
    for word in words:
        assert word in lines[0]


def pipe(path):
    os.mkfifo(path)


def device(path):
    os.symlink("/dev/zero", path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))  # absolute names may be too long for it


def directory(path):
    path.mkdir()


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(2**40)


def listing(file, **changes):
    settings = {
        "root": None,
        "path_column": "path",
        "label_column": None,
        "label_separator": None,
        **dict.fromkeys(("text_column", "question_column", "characters", "tokenizer")),
        "begin_token": False,
        "special_tokens": ["<s>", "</s>", "<pad>"],
        "split_column": None,
        "class_names": None,
        "allow_outside": False,
        "allow_two_labels": False,
    }
    return Listing(file=str(file), **settings | changes)


@pytest.fixture
def table(tmp_path):
    """table(rows, encoding): writes a CSV file of paths and labels."""

    def write(*rows, encoding="utf-8"):
        lines = ["path,label", *(",".join(row) for row in rows)]
        (tmp_path / "table.csv").write_text("\n".join(lines) + "\n", encoding=encoding)
        return tmp_path / "table.csv"

    return write


# -- what is no file


@pytest.mark.parametrize(("make", "what"), [(pipe, "a pipe"), (unix_socket, "a socket"), (device, "a device")])
def test_what_is_no_file_is_refused_in_a_folder(cli, tmp_path, make, what):
    image_folder(tmp_path / "images")
    make(tmp_path / "images" / "train" / "cat" / "x.jpg")
    refused(cli("pack", *FOLDER, "output=out", *SIZES), "cat/x.jpg", what, "remove it")


@pytest.mark.parametrize("entry", ["train", "survey", "preview"])
def test_no_command_waits_for_a_pipe(cli, tmp_path, entry):
    image_folder(tmp_path / "images")
    pipe(tmp_path / "images" / "train" / "cat" / "x.jpg")
    refused(cli(entry, *FOLDER, *SIZES), "cat/x.jpg", "a pipe")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (pipe, "a pipe"),
        (unix_socket, "a socket"),
        (device, "a device"),
        (directory, "a folder"),
        (sparse, "1,099,511,627,776 bytes"),
    ],
)
def test_what_a_table_names_is_only_read_if_it_is_a_file(tmp_path, monkeypatch, table, make, what):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "x.jpg")
    pool = listing(table(("x.jpg", "cat"))).open()["train"]
    with pytest.raises(OSError, match=what):
        pool.load(0)


def test_what_is_no_file_can_be_skipped(cli, tmp_path, table):
    pipe(tmp_path / "x.jpg")
    table(("x.jpg", "cat"))
    refused(cli("pack", *LISTING, "output=out", *SIZES), "x.jpg", "a pipe", "data.loading.on_bad_image=skip")
    skipped = cli("pack", *LISTING, "output=out2", "data.loading.on_bad_image=skip", *SIZES)
    assert skipped.status == 0, skipped.err


@pytest.mark.parametrize(
    ("make", "what", "images"),
    [(pipe, "a pipe", "new/x.jpg"), (pipe, "a pipe", "new"), (device, "a device", "'new/*'"), (sparse, "bytes", "new")],
)
def test_images_to_predict_are_files(cli, tmp_path, make, what, images):
    (tmp_path / "new" / "folder.png").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "new" / "a.png")
    make(tmp_path / "new" / "x.jpg")
    refused(cli("predict", f"run={FROZEN}", f"images={images}", "on_bad_image=error"), "new/x.jpg", what)


def test_a_folder_named_like_an_image_is_a_folder(tmp_path, picture):
    picture(tmp_path / "train" / "cat" / "x.jpg" / "1.png")
    pool = Folder(root=str(tmp_path), splits={"train": "train"}, index_root=None, allow_outside=False).open()["train"]
    assert [pool.name(i) for i in range(len(pool))] == [str(tmp_path / "train" / "cat" / "x.jpg" / "1.png")]


def test_a_line_break_in_a_name_breaks_no_sentence(cli, tmp_path):
    image_folder(tmp_path / "images")
    (tmp_path / "images" / "train" / "cat" / "x\ny\x1b.jpg").write_bytes(b"")
    refused(cli("pack", *FOLDER, "output=out", *SIZES), r"cannot read", r"cat/x\x0ay\x1b.jpg")


def test_names_that_are_no_utf_8_are_packed(cli, tmp_path):
    image_folder(tmp_path / "images")
    os.rename(tmp_path / "images" / "train" / "cat", os.fsencode(tmp_path / "images" / "train") + b"/\xff")
    assert cli("pack", *FOLDER, "output=out", *SIZES).status == 0
    source = Shards(root=str(tmp_path / "out"))
    source.open()
    assert source.class_names == ["dog", "\udcff"]


# -- links


def folder(root, allow_outside=False, index_root=None):
    splits = {"train": "train", "val": "val"}
    return Folder(root=str(root), splits=splits, index_root=index_root, allow_outside=allow_outside)


@pytest.fixture
def elsewhere(tmp_path):
    """Images, and beside them a folder of links; it has classes of its own."""
    image_folder(tmp_path / "elsewhere", splits=("train", "val"))
    return image_folder(tmp_path / "linked")


@pytest.mark.parametrize("place", ["val", "train/emu", "train/cat/x.png"])
@pytest.mark.parametrize("through", ["..", "{absolute}", "chain"])
def test_a_link_that_leads_out_of_the_root_is_refused(tmp_path, elsewhere, refused, place, through):
    target = {"val": "val", "train/emu": "train/cat", "train/cat/x.png": "train/cat/1.png"}[place]
    beside = "/".join([".."] * (place.count("/") + 1)) if through == ".." else str(tmp_path)
    link = f"{beside}/elsewhere/{target}"
    if through == "chain":  # the first link leads to one in the root
        os.symlink(link, elsewhere / ".out")
        link = str(elsewhere / ".out")
    os.symlink(link, elsewhere / place)
    refused(folder(elsewhere), elsewhere / place, "data.source.allow_outside=true")
    assert len(folder(elsewhere, allow_outside=True).open()["train"]) in (20, 21, 30)


def test_links_within_the_root_are_followed(tmp_path, elsewhere):
    (elsewhere / "all").mkdir()
    os.rename(elsewhere / "train" / "dog", elsewhere / "all" / "dog")
    os.symlink("../all/dog", elsewhere / "train" / "dog")
    os.symlink("../../all/dog/1.png", elsewhere / "train" / "cat" / "x.png")
    os.symlink(elsewhere, tmp_path / "root")  # which may be a link itself
    for root in (elsewhere, tmp_path / "root"):
        assert len(folder(root).open()["train"]) == 21


def test_an_index_made_with_links_that_lead_out_is_not_used_without_them(tmp_path, elsewhere, refused):
    os.symlink(tmp_path / "elsewhere" / "val", elsewhere / "val")
    for parent, _, _ in os.walk(tmp_path, followlinks=True):
        os.utime(parent, ns=(1, 1))
    index_root = str(tmp_path / "index")
    folder(elsewhere, allow_outside=True, index_root=index_root).open()
    assert list((tmp_path / "index").iterdir())
    refused(folder(elsewhere, index_root=index_root), elsewhere / "val", "data.source.allow_outside=true")


@pytest.mark.parametrize(
    ("place", "target", "words"),
    [
        ("train/emu", "nowhere", "is a broken link"),
        ("train/emu", "emu", "is a broken link"),
        ("val", "nowhere", "is a broken link"),
        ("train/cat/x.png", "x.png", "is a broken link"),
        ("train/emu", "..", "is a link to a folder that contains the link"),
        ("train/emu", ".", "is a link to a folder that contains the link"),
    ],
)
def test_links_to_nothing_and_in_a_circle_are_refused(elsewhere, refused, place, target, words):
    os.symlink(target, elsewhere / place)
    refused(folder(elsewhere, allow_outside=True), elsewhere / place, words)


# -- tables


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_table_in_another_encoding_is_refused(table, refused, encoding):
    refused(listing(table(("a.png", "cat"), encoding=encoding)), "table.csv, line 1", "UTF-16", "in UTF-8")


def test_a_nul_byte_is_refused_with_its_line(table, tmp_path, refused):
    refused(listing(table(("a.png", "cat"), ("b\0.png", "cat"))), "table.csv, line 3", "NUL byte")
    refused(listing(table(("a.png", "c\0at"))), "table.csv, line 2", "NUL byte")
    parquet.write_table(pa.table({"path": ["a\0.png"], "label": ["cat"]}), tmp_path / "table.parquet")
    refused(listing(tmp_path / "table.parquet"), "column path", "NUL byte")


def test_a_table_without_an_end_is_refused(table, refused):
    file = table(("a.png", "cat"))
    with open(file, "r+b") as content:
        content.truncate(2**40)
    refused(listing(file), "table.csv, line 3", "NUL byte")
    file.write_bytes(b"path,label\n" + b"x" * 3_000_000)
    refused(listing(file), "table.csv, line 2", "1,048,576 letters")
    refused(listing(table(("x" * 200_000, "cat"))), "table.csv, line 2", "field limit")


def test_a_sentence_about_long_values_is_short(table, tmp_path):
    parquet.write_table(pa.table({"path": ["a.png"], "label": [[0.5] * 100_000]}), tmp_path / "table.parquet")
    for source in (
        listing(tmp_path / "table.parquet"),
        listing(table(("a" * 100_000, "cat"), ("../b.png", "x" * 9999))),
    ):
        with pytest.raises(DataError) as error:
            source.open()
        assert len(str(error.value)) < 3000


def test_numbers_beyond_all_bounds_are_names(table):
    source = listing(table(("a.png", "9" * 5000), ("b.png", "1")))
    assert source.open()["train"].targets.tolist() == [1, 0]
    assert source.class_names == ["1", "9" * 5000]


@pytest.mark.parametrize("path", ["../x.png", "a/../../x.png", "/dev/zero", "{root}x/x.png", ".."])
def test_a_path_that_leads_out_of_the_root_is_refused(table, tmp_path, refused, path):
    path = path.format(root=tmp_path)
    file = table(("a/x.png", "cat"), (path, "dog"))
    refused(listing(file), "table.csv, line 3", path, "data.source.allow_outside=true")
    assert len(listing(file, allow_outside=True).open()["train"]) == 2


def test_a_path_in_the_root_may_be_absolute_or_make_a_detour(table, tmp_path):
    (tmp_path / "images").mkdir()
    os.symlink(tmp_path / "images", tmp_path / "link")
    paths = [str(tmp_path / "images" / "a.png"), "b/../c.png", "./d.png", "..e.png"]
    file = table(*((path, "cat") for path in paths))
    for root in ("images", "link"):
        pool = listing(file, root=str(tmp_path / root)).open()["train"]
        assert pool.name(0) == paths[0]
    assert len(listing(file, root="/", allow_outside=False).open()["train"]) == 4


@pytest.mark.parametrize("again", ["a.png", "./a.png", "b/../a.png", "{root}/a.png", "b//../a.png"])
def test_one_file_has_one_label(table, tmp_path, refused, again):
    again = again.format(root=tmp_path)
    file = table(("a.png", "cat"), ("b.png", "dog"), (again, "dog"))
    words = ("table.csv, line 4", again, "has the label dog, and cat at", "line 2", "data.source.allow_two_labels=true")
    refused(listing(file), *words)
    assert listing(file, allow_two_labels=True).open()["train"].targets.tolist() == [0, 1, 1]
    twice = listing(table(("a.png", "cat"), ("b.png", "dog"), (again, "cat")))
    assert twice.open()["train"].targets.tolist() == [0, 1, 0]


def test_several_labels_are_the_same_in_any_order(table, refused):
    same = table(("a.png", "cat;dog"), ("a.png", "dog; cat"))
    assert len(listing(same, label_separator=";").open()["train"]) == 2
    refused(
        listing(table(("a.png", "cat;dog"), ("a.png", "")), label_separator=";"), "has the label none, and cat, dog at"
    )


# -- labels that are no class


@pytest.mark.parametrize("label", [HUGE, 2**63 - 1, 20_000_000])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_label_beyond_all_bounds_fills_no_memory(tmp_path, refused, label, suffix):
    images, labels = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, label, 0])
    np.savez(tmp_path / "i.npz", images=images, labels=labels)
    np.save(tmp_path / "i.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    file = {"train": str(tmp_path / f"i{suffix}")}
    source = {"images": file, "labels": {"train": str(tmp_path / "labels.npy")} if suffix == ".npy" else {}}
    name = "labels.npy" if suffix == ".npy" else "i.npz: labels"
    refused(Arrays(**source, class_names=None), tmp_path / name, f"holds {label}, for image 2", "10,000,000")
    refused(Arrays(**source, class_names=["a", "b"]), f"holds {label}, for image 2", "has 2 names")


def test_labels_without_a_sign_are_taken_as_they_are(tmp_path, refused):
    np.savez(tmp_path / "i.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.array([0, 2**64 - 1], np.uint64))
    source = Arrays(images={"train": str(tmp_path / "i.npz")}, labels={}, class_names=None)
    refused(source, "holds 18446744073709551615")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A folder as shards."""
    folder = tmp_path_factory.mktemp("packed")
    image_folder(folder / "images")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["pack.py", *FOLDER, "output=out", *SIZES])
        __import__("pack").main()
    return folder / "out"


@pytest.fixture
def shards(packed, tmp_path):
    """shards(column, value): a copy, in the fourth row of whose index that value stands."""

    def write(column=None, value=None):
        shutil.copytree(packed, tmp_path / "out")
        path, index = tmp_path / "out" / "train.safetensors", tmp_path / "out" / "index.json"
        if column is not None:
            columns, metadata = map_index(path)
            columns = {name: values.copy() for name, values in columns.items()}
            columns[column][3] = value
            path.unlink()
            save_columns(path, columns, metadata)
            content = json.loads(index.read_text())
            content["splits"]["train"]["digest"] = compute_digest(path.read_bytes())
            index.write_text(json.dumps(content))
        return tmp_path / "out"

    return write


OF_SHARDS = ["data=shards", "data.source.root=out", *SIZES]


@pytest.mark.parametrize("label", [HUGE, 2, -1])
def test_a_label_of_shards_that_is_no_class_is_named(cli, shards, label):
    shards("target", label)
    for entry in ("train", "survey"):
        refused(cli(entry, *OF_SHARDS), "cat/3.png in out/train-000000.tar", f"label {label}", "2 classes")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("offset", value) for value in (HUGE, -1, 2**63 - 1)),
        *(("length", value) for value in (HUGE, -1, 2**63 - 1)),
        *(("shard", value) for value in (1, -1)),
        *(("name_end", value) for value in (HUGE, -1)),
        ("height", 2**30),
    ],
)
def test_an_index_that_leads_out_of_its_shards_is_refused(shards, refused, column, value):
    refused(Shards(root=str(shards(column, value))), "train.safetensors", "image 3", "pack the data set again")


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.pop("splits"),
        lambda index: index.pop("class_names"),
        lambda index: index.update(class_names=[1, 2]),
        lambda index: index.update(version="x"),
        lambda index: index.update(root=5),
        lambda index: index["splits"]["train"].pop("digest"),
        lambda index: index["splits"]["train"].pop("fingerprint"),
        lambda index: index["splits"]["train"].update(index="../out/train.safetensors"),
        lambda index: index["splits"]["train"].update(shards=3),
        lambda index: index["splits"]["train"].update(shards=[]),
        lambda index: index["splits"]["train"]["shards"].append(["/dev/zero", 0]),
        lambda index: index["splits"]["train"].update(unreadable={"x": "damaged"}),
    ],
)
def test_an_index_that_says_too_little_or_too_much_is_refused(shards, refused, change):
    path = shards() / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    refused(Shards(root=str(path.parent)), path, "index of shards" if index.get("version") == "x" else "damaged")


def test_shards_without_an_index_that_can_be_read_are_refused(cli, shards, tmp_path, refused):
    root = shards()
    os.rename(root / "train.safetensors", tmp_path / "columns")
    for make in (pipe, directory, lambda path: path.write_bytes(b"")):
        make(root / "train.safetensors")
        refused(Shards(root=str(root)), root / "train.safetensors")
        shutil.rmtree(root / "train.safetensors") if make is directory else os.unlink(root / "train.safetensors")
    os.rename(tmp_path / "columns", root / "train.safetensors")
    content = json.loads((root / "index.json").read_text())
    content["splits"]["val"] = content["splits"].pop("train")
    (root / "index.json").write_text(json.dumps(content))
    refused_run = cli("survey", *OF_SHARDS)
    assert refused_run.status == 3
    assert "the splits val; it may have only train, val, test" in refused_run.err
    (root / "index.json").write_text("[" * 100_000)
    refused(Shards(root=str(root)), root / "index.json", "not an index of shards")
    (root / "index.json").unlink()
    pipe(root / "index.json")
    refused(Shards(root=str(root)), root / "index.json", "a pipe")


# -- bombs


def test_an_archive_that_unpacks_to_more_than_the_memory_is_refused(tmp_path, refused, monkeypatch):
    images = np.zeros((100, 32, 32, 3), np.uint8)
    np.savez_compressed(tmp_path / "i.npz", images=images, labels=np.arange(100) % 2)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 50, "SC_PAGE_SIZE": 4096}.__getitem__)
    source = Arrays(images={"train": str(tmp_path / "i.npz")}, labels={}, class_names=None)
    refused(source, "images unpacks to 307,328 bytes", "204,800", "save it as .npy")


def header(shape):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"shape": shape, "fortran_order": False, "descr": "|u1"})
    return content.getvalue()


@pytest.mark.parametrize("shape", [(HUGE, 8, 8), (HUGE, HUGE, 8), (-1, 8, 8), (4, 0, 8)])
@pytest.mark.filterwarnings("ignore:overflow")
def test_arrays_that_claim_any_shape_are_refused(tmp_path, refused, shape):
    np.save(tmp_path / "labels.npy", np.arange(4) % 2)
    (tmp_path / "i.npy").write_bytes(header(shape) + bytes(256))
    with zipfile.ZipFile(tmp_path / "i.npz", "w") as archive:
        archive.writestr("images.npy", header(shape) + bytes(256))
        archive.write(tmp_path / "labels.npy", "labels.npy")
    labels = {"train": str(tmp_path / "labels.npy")}
    refused(Arrays(images={"train": str(tmp_path / "i.npy")}, labels=labels, class_names=None), tmp_path / "i.npy")
    refused(Arrays(images={"train": str(tmp_path / "i.npz")}, labels={}, class_names=None), tmp_path / "i.npz")


def test_an_array_under_the_other_name_is_refused(tmp_path, refused):
    np.save(tmp_path / "labels.npy", np.arange(4) % 2)
    shutil.copy(tmp_path / "labels.npy", tmp_path / "i.npz")
    np.savez(tmp_path / "j.npz", labels=np.arange(4))
    shutil.copy(tmp_path / "j.npz", tmp_path / "j.npy")
    refused(Arrays(images={"train": str(tmp_path / "i.npz")}, labels={}, class_names=None), "is not a .npz", "rename")
    labels = {"train": str(tmp_path / "labels.npy")}
    refused(
        Arrays(images={"train": str(tmp_path / "j.npy")}, labels=labels, class_names=None), "is not a .npy", "rename"
    )


PNG = (lambda file: (Image.new("RGB", (8, 8)).save(file, "PNG"), file.getvalue())[1])(io.BytesIO())


def tars(folder, members, end=b""):
    (folder / "tars").mkdir(exist_ok=True)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        body = content.getvalue()[: tar.offset]
    (folder / "tars" / "train-0.tar").write_bytes(body + end + bytes(1024))


def member(name, size, kind=tarfile.REGTYPE, **fields):
    """A header of a tar whose size is claimed."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def sparse_member(name, size):
    """A member that is stored as nothing and read as `size` zeros."""
    block = bytearray(member(name, 0, tarfile.GNUTYPE_SPARSE))
    block[386:410] = b"%011o\0%011o\0" % (0, 0)
    block[483:495] = b"%011o\0" % size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (member("x.jpg", HUGE), "x.jpg has 1,000,000,000,000 bytes"),
        (member("x.jpg", -512), "x.jpg has -512 bytes"),
        (member("folder", -512, tarfile.DIRTYPE), "folder has -512 bytes"),
        (sparse_member("x.jpg", 8**11 - 1), "x.jpg has 8,589,934,591 bytes"),
        (member("pax", HUGE, tarfile.XHDTYPE), "not a complete, uncompressed tar"),
        (member("long", HUGE, tarfile.GNUTYPE_LONGNAME), "not a complete, uncompressed tar"),
    ],
)
def test_a_tar_that_claims_any_size_is_refused(cli, tmp_path, end, words):
    tars(tmp_path, {"0.png": PNG, "0.cls": b"0"}, end)
    refused(cli("pack", "index=tars", "data.loading.num_workers=0"), "tars/train-0.tar", words)


@pytest.mark.parametrize(
    ("name", "label", "words"),
    [
        ("x.cls", b"%d" % HUGE, "holds the class 1000000000000"),
        ("x.json", b'{"label": %d}' % HUGE, "holds the class 1000000000000"),
        ("x.json", b'{"label": [1, %d]}' % HUGE, "holds the class 1000000000000"),
        ("x.json", b'{"label": -1}', "holds the class -1"),
        ("x.json", b"[" * 100_000, "holds no class"),
        ("x.cls", b"9" * 5000, "some classes are integers (0), others are not (999"),
    ],
)
def test_a_class_of_a_tar_beyond_all_bounds_is_refused(cli, tmp_path, name, label, words):
    tars(tmp_path, {"0.png": PNG, "0.cls": b"0", "x.png": PNG, name: label})
    refused(cli("pack", "index=tars", "data.loading.num_workers=0"), words)


@pytest.mark.parametrize("make", [pipe, device])
def test_a_tar_is_a_file(cli, tmp_path, make):
    tars(tmp_path, {"0.png": PNG, "0.cls": b"0"})
    make(tmp_path / "tars" / "train-1.tar")
    refused(cli("pack", "index=tars", "data.loading.num_workers=0"), "tars/train-1.tar", "not a file", "remove it")


@pytest.mark.parametrize("make", [pipe, directory, lambda path: path.write_bytes(b"\xff\xfe\x00")])
def test_class_names_are_read_from_a_text_file(cli, tmp_path, make):
    tars(tmp_path, {"0.png": PNG, "0.cls": b"0"})
    make(tmp_path / "names.txt")
    run = cli("pack", "index=tars", "class_names=names.txt", "data.loading.num_workers=0")
    assert (run.status, "class_names=names.txt cannot be read" in run.err) == (2, True), run.err


def test_tars_whose_names_are_no_utf_8_are_indexed(cli, tmp_path):
    tars(tmp_path, {"0.png": PNG, "0.cls": b"0"})
    os.rename(tmp_path / "tars" / "train-0.tar", os.fsencode(tmp_path / "tars") + b"/\xff.tar")
    assert cli("pack", "index=tars", "data.loading.num_workers=0").status == 0
    assert Shards(root=str(tmp_path / "tars")).open()["train"].load(0) == PNG
