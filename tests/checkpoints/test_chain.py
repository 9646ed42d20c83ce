import json

import pytest
import torch

from vitlab.checkpoints.chain import CHAIN, Chain, digest_file, read_chain
from vitlab.errors import CheckpointError

RECORD = {"identity": {"id": "a"}, "digests": {"config": "c", "code": "d"}, "fingerprint": "f", "machine": {}}


def save(path, value, time=0.0):
    torch.save({"state_dict": {"w": torch.full((4,), float(value))}, "time": time}, path)
    return path


def steps(folder):
    return [next(iter(line.items())) for line in read_chain(folder / CHAIN)]


def grown(folder, first=0, last=3, record=RECORD):
    chain = Chain(folder, record, first)
    for step in range(first + 1, last + 1):
        chain.add_state(step, save(folder / "state", step), {})
    return chain


def test_a_resumed_run_drops_what_came_after_and_equals_the_uninterrupted_one(tmp_path):
    grown(tmp_path)
    whole = (tmp_path / CHAIN).read_bytes()
    grown(tmp_path, first=1)
    assert (tmp_path / CHAIN).read_bytes() == whole


def test_a_start_with_another_config_gets_a_line(tmp_path):
    grown(tmp_path)
    grown(tmp_path, first=2, record={**RECORD, "digests": {"config": "new", "code": "d"}})
    assert steps(tmp_path) == [("from_step", 0), ("step", 1), ("step", 2), ("from_step", 2), ("step", 3)]


def test_lines_of_best_models_stay_and_the_end_goes(tmp_path):
    chain = grown(tmp_path)
    chain.add_best(3, tmp_path / "state")
    chain.add_end(3, 0.5, {"test/acc1": 0.5, "test/ece": float("nan")})
    assert json.loads((tmp_path / CHAIN).read_text().splitlines()[-1])["test"] == {"test/acc1": 0.5, "test/ece": None}
    Chain(tmp_path, RECORD, 1)
    assert steps(tmp_path) == [("from_step", 0), ("step", 1), ("best", 3)]


@pytest.mark.parametrize("damage", ["edit", "drop", "swap", "not_json"])
def test_a_changed_chain_is_damaged_and_a_run_begins_a_new_one(tmp_path, damage, capsys):
    grown(tmp_path)
    lines = (tmp_path / CHAIN).read_text().splitlines()
    edited = {
        "edit": [lines[0], lines[1].replace('"step": 1', '"step": 7'), *lines[2:]],
        "drop": [lines[0], *lines[2:]],
        "swap": [lines[0], lines[2], lines[1], lines[3]],
        "not_json": [*lines, "{"],
    }[damage]
    (tmp_path / CHAIN).write_text("\n".join(edited) + "\n")
    with pytest.raises(CheckpointError, match=r"is damaged: (line|a line)"):
        read_chain(tmp_path / CHAIN)
    Chain(tmp_path, RECORD, 3)
    assert "chain.damaged.jsonl" in capsys.readouterr().out
    assert steps(tmp_path) == [("from_step", 3)]


def test_a_line_that_a_kill_has_cut_is_left_out(tmp_path):
    grown(tmp_path)
    content = (tmp_path / CHAIN).read_bytes()
    (tmp_path / CHAIN).write_bytes(content[:-5])
    assert steps(tmp_path)[-1] == ("step", 2)
    grown(tmp_path, first=2)
    assert (tmp_path / CHAIN).read_bytes() == content


def test_the_digest_of_tensors_knows_them_alone(tmp_path):
    first, later, other = (save(tmp_path / name, v, t) for name, v, t in (("a", 1, 0.0), ("b", 1, 9.0), ("c", 2, 0.0)))
    assert digest_file(first)[0] == digest_file(later)[0] != digest_file(other)[0]
    assert digest_file(first)[1] != digest_file(later)[1]
