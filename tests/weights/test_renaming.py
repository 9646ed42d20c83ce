"""Names there and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitlab.errors import CheckpointError
from vitlab.weights.huggingface import rename_back, rename_tensors
from vitlab.weights.renaming import rename, stack, unstack


@given(depth=st.integers(1, 12), width=st.integers(1, 4))
def test_hugging_face_names_there_and_back(depth, width):
    D = 2 * width
    names = [f"blocks.{i}.{name}" for i in range(depth) for name in ("norm1.weight", "mlp.fc1.bias", "attn.proj.bias")]
    ours = {name: torch.randn(D) for name in [*names, "norm.bias", "head.bias"]}
    ours |= {"cls_token": torch.randn(1, 1, D), "pos_embed": torch.randn(1, 3, D)}
    ours |= {f"blocks.{i}.attn.qkv.weight": torch.randn(3 * D, D) for i in range(depth)}
    again = rename_tensors(rename_back(ours))
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)


def test_stacks_are_whole_or_left_as_they_are():
    tensors = {f"a.attn.{letter}.weight": torch.randn(2, 2) for letter in "qkv"} | {"attn_pool.q.weight": torch.ones(1)}
    stacked = stack(tensors, "attn", "qkv")
    assert list(stacked) == ["a.attn.qkv.weight", "attn_pool.q.weight"]
    assert unstack(stacked, "attn", "qkv").keys() == tensors.keys()
    del tensors["a.attn.v.weight"]
    assert stack(tensors, "attn", "qkv").keys() == tensors.keys()


def test_two_tensors_of_one_name_are_refused():
    with pytest.raises(CheckpointError, match="two tensors"):
        rename({"a": torch.ones(1), "b": torch.ones(1)}, [("b", "a")])
