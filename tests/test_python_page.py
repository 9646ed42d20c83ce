"""docs/python.md: its code runs as it stands there."""

import re

import pytest
from conftest import image_folder

from vitlab.config.home import ROOT


@pytest.mark.slow
@pytest.mark.ci
def test_the_code_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.S)
    image_folder(tmp_path / "photos", count=60, size=40)
    monkeypatch.chdir(tmp_path)
    here = {}
    exec(code, here)
    assert here["best"].class_name in ("cat", "dog")
    assert here["best"].probability == max(probability for _, probability in here["best"].top)
    assert here["features"].shape == (2, here["run"].model.head.in_features)
    assert [weights.shape[0] for weights in here["attention"]] == [2] * here["run"].model.depth
    assert here["logits"].shape == (2, 2)
    assert set(here["metrics"]) >= {"val/loss", "val/acc1"}
    assert here["model"].head.out_features == 3
