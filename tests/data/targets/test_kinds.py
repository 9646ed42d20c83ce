"""Targets that are no classes: a text, another model's output, nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitlab.data.pools.splits import carve
from vitlab.data.targets import NoTargets, Outputs, SeveralTexts, Texts
from vitlab.errors import ConfigError
from vitlab.vocabulary import CharacterVocabulary


@given(st.lists(st.text()))
def test_texts_come_back_from_a_batch(texts):
    batch = Texts(texts).collate()
    assert batch.codes.dtype == batch.lengths.dtype == torch.int64
    rows = zip(batch.codes.tolist(), batch.lengths.tolist(), strict=True)
    assert ["".join(map(chr, codes[:length])) for codes, length in rows] == texts
    assert all(not code for codes, length in zip(*batch, strict=True) for code in codes[length:])


def test_texts_are_encoded_as_they_are_told():
    texts = Texts(["ab", "", "a"], CharacterVocabulary("ab"))
    assert texts[[2, 0]].collate().codes.tolist() == [[3, 2, 0], [3, 4, 2]]
    assert texts[1:].words(1, []) == "a"


def test_outputs_are_float_and_nothing_is_none():
    outputs = Outputs(np.arange(6, dtype=np.float16).reshape(3, 2))
    assert torch.equal(outputs[[2, 0]].collate(), torch.tensor([[4.0, 5.0], [0.0, 1.0]]))
    assert NoTargets.times(4)[:2].collate() is None
    assert len(NoTargets.times(4)[1:]) == 3


@pytest.mark.parametrize("targets", [Texts(["x"] * 50), Outputs(np.zeros((50, 2))), NoTargets.times(50)])
def test_what_has_no_classes_is_divided_at_random(targets):
    parts = carve(targets, {"train": 0.7, "val": 0.1, "test": 0.2})
    assert [len(part) for part in parts.values()] == [35, 5, 10]
    assert sorted(np.concatenate(list(parts.values()))) == list(range(50))
    assert parts["train"].tolist() != list(range(35))
    with pytest.raises(ConfigError, match=r"cannot be mixed; set mixing=none"):
        targets.shares(targets.collate(), 10)


def test_all_texts_of_an_image_are_in_one_split():
    images = np.random.RandomState(1).randint(0, 40, 120)
    texts = SeveralTexts([str(i) for i in range(120)], None, images)
    parts = carve(texts, {"train": 0.7, "val": 0.1, "test": 0.2})
    assert sorted(np.concatenate(list(parts.values()))) == list(range(120))
    shown = [set(images[part]) for part in parts.values()]
    assert sum(map(len, shown)) == len(set(images))
    assert len(shown[1]) == round(0.1 * len(set(images)))
    some = texts[parts["test"]]
    assert some.values.tolist() == [str(i) for i in parts["test"]]
    assert some.collate().images.tolist() == images[parts["test"]].tolist()
    assert some.tobytes() != SeveralTexts(some.values, None, some.images + 1).tobytes()


def test_the_fingerprint_covers_where_a_text_ends():
    assert Texts(["ab", "c"]).tobytes() != Texts(["a", "bc"]).tobytes()
