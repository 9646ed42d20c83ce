"""A config out of somebody's checkpoint calls nothing and reads nothing of this machine."""

import pytest
import torch


@pytest.mark.parametrize(
    "values",
    [
        {"name": "${oc.env:MY_SECRET}"},
        {"name": "${${x}:MY_SECRET}", "x": "oc.env"},
        {"name": "a ${oc.decode:${oc.env:MY_SECRET}} b"},
        {"name": "${better:${oc.env:MY_SECRET}}"},
        {"name": "${ oc.env : MY_SECRET }"},
        {"name": "${folder_name:${oc.env:MY_SECRET}}"},
        {"name": "${oc.create:'${oc.env:MY_SECRET}'}"},
    ],
    ids=lambda values: values["name"],
)
@pytest.mark.parametrize("entry", ["evaluate", "train"])
def test_no_resolver_is_called(cli, tmp_path, digits_run, monkeypatch, values, entry):
    monkeypatch.setenv("MY_SECRET", "hunter2hunter2")
    checkpoint = torch.load(digits_run / "checkpoints" / "latest.ckpt", weights_only=True)
    checkpoint["run"]["config"] |= values
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name in ("latest", "best"):
        torch.save(checkpoint, tmp_path / "run" / "checkpoints" / f"{name}.ckpt")
    run = cli("train", "resume=run", tiny=False) if entry == "train" else cli("evaluate", "run=run")
    assert run.status in (2, 4), run.err
    assert "resolver" in run.err
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").glob("*") if path.is_file())
    assert b"hunter2hunter2" not in written
