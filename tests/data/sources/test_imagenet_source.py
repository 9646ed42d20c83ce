"""ImageNet's three archives, small ones of the same form: unpacked by torchvision, once, and only whole."""

import hashlib
import io
import tarfile

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision.datasets import imagenet

from vitlab.data import ImageNet

WNIDS = {"n01": "crane, wading bird", "n02": "crane", "n03": "tench, Tinca tinca"}
VAL = ["n03", "n01", "n03", "n02"]  # what the images show, in the order of their names


def jpeg(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.RandomState(seed).randint(0, 256, (8, 8, 3), dtype=np.uint8)).save(file, "JPEG")
    return file.getvalue()


def tar(files, mode="w"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def devkit():
    kinds = [("ILSVRC2012_ID", "i4"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "i4")]
    numbers = {wnid: 3 - k for k, wnid in enumerate(WNIDS)}  # not in the order of the names
    rows = [(numbers[wnid], wnid, words, "", 0) for wnid, words in WNIDS.items()] + [(4, "n99", "animal", "", 3)]
    meta = io.BytesIO()
    savemat(meta, {"synsets": np.array(rows, dtype=kinds)})
    truth = "".join(f"{numbers[wnid]}\n" for wnid in VAL).encode()
    data = {"meta.mat": meta.getvalue(), "ILSVRC2012_validation_ground_truth.txt": truth}
    return tar({f"ILSVRC2012_devkit_t12/data/{name}": content for name, content in data.items()}, "w:gz")


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """The folder with the archives, whose checksums are those that torchvision asks for."""
    root = tmp_path / "imagenet"
    root.mkdir()
    photos = {wnid: {f"{wnid}_{i}.JPEG": jpeg(10 * k + i) for i in range(2)} for k, wnid in enumerate(WNIDS)}
    contents = {
        "train": tar({f"{wnid}.tar": tar(files) for wnid, files in photos.items()}),
        "val": tar({f"ILSVRC2012_val_{i:08d}.JPEG": jpeg(100 + i) for i in range(len(VAL))}),
        "devkit": devkit(),
    }
    meta = {}
    for key, (name, _) in imagenet.ARCHIVE_META.items():
        (root / name).write_bytes(contents[key])
        meta[key] = name, hashlib.md5(contents[key]).hexdigest()
    monkeypatch.setattr(imagenet, "ARCHIVE_META", meta)
    return root


def source(root, index_root=None):
    return ImageNet(root=str(root), index_root=index_root and str(index_root), allow_outside=False)


def check(root, index_root=None):
    imagenet = source(root, index_root)
    imagenet.prepare()
    pools = imagenet.open()
    assert imagenet.class_names == ["crane (n01)", "crane (n02)", "tench"]
    assert list(pools) == ["train", "test"]
    assert pools["train"].targets.tolist() == [0, 0, 1, 1, 2, 2]
    assert [pools["train"].load(i) for i in range(6)] == [jpeg(i) for i in (0, 1, 10, 11, 20, 21)]
    assert pools["test"].targets.tolist() == [0, 1, 2, 2]
    assert [pools["test"].load(i) for i in range(4)] == [jpeg(i) for i in (101, 103, 100, 102)]


def test_the_archives_are_unpacked_and_the_published_val_is_the_test(archives, tmp_path):
    check(archives)
    for archive in [*archives.glob("*.tar"), *archives.glob("*.gz")]:
        archive.unlink()  # they are needed once
    check(archives, tmp_path / "index")
    check(archives, tmp_path / "index")


def test_what_a_killed_process_half_unpacked_is_unpacked_again(archives):
    (archives / ".train.unfinished" / "n01").mkdir(parents=True)
    (archives / ".val.unfinished" / "n01").mkdir(parents=True)
    check(archives)
    assert not list(archives.glob(".*unfinished"))


@pytest.mark.parametrize("key", ["train", "val", "devkit"])
def test_a_missing_and_a_damaged_archive_are_refused(archives, refused, key):
    path = archives / imagenet.ARCHIVE_META[key][0]
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    refused(source(archives), path.name, archives, "data=imagenet_folder")
    path.unlink()
    refused(source(archives), path.name, archives, "data=imagenet_folder")
    path.write_bytes(content)
    check(archives)


def test_a_missing_folder_is_refused(tmp_path, refused):
    refused(source(tmp_path / "nowhere"), "data.source.root", tmp_path / "nowhere")


def test_class_names_that_are_damaged_are_refused(archives, refused):
    check(archives)
    (archives / "meta.bin").write_bytes(b"damaged")
    refused(source(archives), archives / "meta.bin", "delete it")
