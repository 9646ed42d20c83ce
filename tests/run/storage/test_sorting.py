"""Images are copied into a folder for each class, with the folders they lay in."""

import pytest

from vitlab.errors import ConfigError
from vitlab.run.storage.sorting import Sorting


def test_files_of_the_same_name_stay_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ["in/a/0.png", "in/b/0.png"]
    for number, file in enumerate(files):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(str(number))
    sorting = Sorting.open("out", files, ["cat/dog", "bird"])
    for file in files:
        sorting.copy(tmp_path / file, "cat/dog")
    sorting.copy(tmp_path / files[0], None)
    found = {str(path.relative_to(tmp_path / "out")): path.read_text() for path in (tmp_path / "out").rglob("*.png")}
    assert found == {"cat_dog/a/0.png": "0", "cat_dog/b/0.png": "1", "none_of_these/a/0.png": "0"}


@pytest.mark.parametrize(
    ("root", "names", "sentence"),
    [
        ("in", ["a"], "holds images that the command reads"),
        (".", ["a"], "holds images"),
        ("out", ["a/b", "a_b"], "the same folder"),
    ],
)
def test_a_place_that_would_mix_files_is_refused(tmp_path, monkeypatch, root, names, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigError, match=sentence):
        Sorting.open(root, ["in/0.png"], names)
