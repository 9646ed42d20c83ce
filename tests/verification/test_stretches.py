import pytest
import torch

from vitlab.errors import CheckpointError
from vitlab.verification.recorded import RecordedRun
from vitlab.verification.stretches import (
    Stretch,
    choose_stretches,
    compare_states,
    compute_miss,
    list_stretches,
)


def recorded(tmp_path, steps, begun=0):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in steps:
        (folder / f"step_{step}.ckpt").touch()
    return RecordedRun(tmp_path, [{"from_step": begun}, *({"step": step} for step in steps)])


def test_stretches_lie_between_kept_states_and_begin_where_the_chain_does(tmp_path):
    assert list_stretches(recorded(tmp_path, [4, 8, 12])) == [(0, 4), (4, 8), (8, 12)]


def test_a_chain_that_begins_later_has_no_stretch_from_the_beginning(tmp_path):
    assert list_stretches(recorded(tmp_path, [4, 8], begun=2)) == [(4, 8)]


def test_too_few_states_are_refused_with_the_key_that_keeps_more(tmp_path):
    with pytest.raises(CheckpointError, match=r"latest_state\.keep_states=8"):
        list_stretches(recorded(tmp_path, [4], begun=2))


def test_the_probability_to_pass_is_what_is_counted_over_all_choices():
    assert compute_miss(8, 3, 4) == pytest.approx(4 / 56)
    assert compute_miss(8, 3, 1) == pytest.approx(5 / 8)
    assert compute_miss(2, 2, 1) == 0


def test_without_a_seed_every_stretch_is_chosen_at_some_time():
    stretches = [Stretch(step, step + 1) for step in range(4)]
    assert set().union(*(choose_stretches(stretches, 1, None) for _ in range(200))) == set(stretches)
    assert choose_stretches(stretches, 2, 5) == choose_stretches(stretches, 2, 5)
    assert choose_stretches(stretches, 9, None) == stretches


def test_one_bit_of_one_tensor_is_named():
    state = {"state_dict": {"a": torch.zeros(3), "b": torch.ones(2)}, "callbacks": {"c": torch.zeros(1)}}
    other = {"state_dict": {"a": torch.tensor([0.0, -0.0, 0.0]), "b": torch.ones(2)}, "callbacks": {}}
    assert compare_states(state, other).names == ["state_dict.a"]
    other["state_dict"]["b"] = torch.tensor([1.0, 1.1])
    found = compare_states(state, other)
    assert found.names == ["state_dict.a", "state_dict.b"]
    assert found.distance == pytest.approx(0.1 / 2**0.5)
    assert compare_states(state, {"state_dict": {"a": torch.zeros(3)}}).names == ["state_dict.b"]
