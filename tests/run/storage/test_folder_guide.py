"""The guide of a run's folder names what a run writes, and no more."""

import re

from vitlab.run.storage.folder_guide import FILES, write_guide


def test_every_file_of_a_finished_run_is_explained(digits_run):
    told = {name.rstrip("/") for names in FILES for name in names.split(", ")}
    found = {path.name for path in digits_run.iterdir() if not path.name.startswith(".")}
    told_first = {name.partition("/")[0] for name in told} | {"README.md"}
    assert {re.sub(r"^test_image\..*", "test_image.*", name) for name in found} <= told_first
    assert (digits_run / "README.md").read_text().startswith("# vit_mu4_digits\n")


def test_it_names_the_commands_that_read_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    write_guide(tmp_path / "run", "a title", ["vitlab evaluate run=run"])
    assert "vitlab evaluate run=run" in (tmp_path / "run" / "README.md").read_text()
