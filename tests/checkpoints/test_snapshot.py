import torch

from vitlab.checkpoints.snapshot import Snapshot, count_bytes


def test_what_changes_afterwards_does_not_change_the_copy():
    state = {"weights": torch.ones(3), "kept": [{"steps": [1, 2]}, torch.ones(2, dtype=torch.int64)], "name": "x"}
    copy = Snapshot().copy_state(state)
    state["weights"].zero_()
    state["kept"][1].zero_()
    state["kept"][0]["steps"].append(3)
    assert copy["weights"].tolist() == [1, 1, 1]
    assert copy["kept"][1].tolist() == [1, 1]
    assert copy["kept"][1].dtype is torch.int64
    assert copy["kept"][0] == {"steps": [1, 2]}
    assert copy["name"] == "x"


def test_tensors_that_share_their_numbers_share_them_in_the_copy():
    tied = torch.ones(2, 3)
    copy = Snapshot().copy_state(
        {"embedding": tied.detach(), "head": tied.detach(), "turned": tied.T, "other": torch.ones(6)}
    )
    assert copy["embedding"].data_ptr() == copy["head"].data_ptr()
    assert copy["other"].data_ptr() != copy["head"].data_ptr()
    assert copy["turned"].tolist() == tied.T.tolist()


def test_the_next_copy_is_made_in_the_same_memory_where_it_fits():
    snapshot = Snapshot()
    first = snapshot.copy_state({"a": torch.ones(3), "b": torch.ones(2)})
    second = snapshot.copy_state({"a": torch.zeros(3), "b": torch.zeros(4)})
    assert first["a"].data_ptr() == second["a"].data_ptr()
    assert second["b"].tolist() == [0] * 4


def test_the_size_is_that_of_the_tensors():
    assert count_bytes({"a": torch.ones(3), "b": [torch.ones(2, dtype=torch.uint8), "text"]}) == 14
