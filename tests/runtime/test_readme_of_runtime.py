"""The README of the runtime: its first code runs, its command is taken, and its options exist."""

import re
import shlex
import sys

from pictures import photo, stored
from test_structure import PLAIN_WORDS, PROSE_ALONE, places_of

from vitlab.config.home import ROOT
from vitlab_runtime import command

README = (ROOT / "runtime" / "README.md").read_text(encoding="utf-8")


def draw_photos(folder, bundle):
    (folder / "bundle").symlink_to(bundle.folder)
    for place in ("", "photos", "more"):
        (folder / place).mkdir(exist_ok=True)
        for name in ("photo.jpg", "other.png"):
            (folder / place / name).write_bytes(stored(photo(40, 50), "JPEG"))


def test_its_python_runs(bundle, tmp_path, monkeypatch, capsys):
    draw_photos(tmp_path, bundle)
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", README, re.S)[1], {})
    assert capsys.readouterr().out.endswith("['' '']\n")


def test_its_command_runs(bundle, tmp_path, monkeypatch, capsys):
    draw_photos(tmp_path, bundle)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", shlex.split(re.search(r"^vitlab-predict .*", README, re.M)[0]))
    assert command.main() == 0
    assert capsys.readouterr().out == "3 images, 0 unreadable; all in predictions.csv\n"


def test_it_uses_plain_words():
    assert list(places_of(PLAIN_WORDS | PROSE_ALONE, {"README": README})) == []
