"""Exact match and character error rate: torchmetrics' own figures, whatever the batches and devices."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence
from torchmetrics.functional.text import char_error_rate

from vitlab.tasks.text_errors import TextErrors
from vitlab.vocabulary import CharacterVocabulary

VOCABULARY = CharacterVocabulary("abc")
TEXT = st.text("abc", max_size=6)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=12).filter(lambda pairs: any(b for _, b in pairs))


def tokens(texts):
    return pad_sequence([torch.tensor(VOCABULARY.encode(text)) for text in texts], batch_first=True)


def new():
    """One that scores short texts by themselves."""
    metric = TextErrors(VOCABULARY, max_length=7)
    metric.groups = ["short"]
    return metric


def scored(pairs, cuts=()):
    """In batches that begin at these places."""
    metric = new()
    bounds = [0, *cuts, len(pairs)]
    for begin, end in pairwise(bounds):
        batch = pairs[begin:end]
        short = torch.tensor([[len(b) < 3] for _, b in batch])
        metric.update(tokens([a for a, _ in batch]), tokens([b for _, b in batch]), short)
    return metric


@given(PAIRS, st.data())
@settings(deadline=None, max_examples=40)
def test_scores_are_those_of_all_texts_at_once(pairs, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(pairs) - 1), max_size=3))) if len(pairs) > 1 else []
    scores = scored(pairs, cuts).compute()
    expected = char_error_rate([a for a, _ in pairs], [b for _, b in pairs])
    torch.testing.assert_close(scores["cer"], expected)
    assert scores["exact"].item() == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    short = [a == b for a, b in pairs if len(b) < 3]
    expected = sum(short) / len(short) if short else float("nan")
    assert scores["exact_short"].item() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("others", [[("ab", "ab"), ("", "ccccc")], []])
@pytest.mark.parametrize("own", [[("a", "ab"), ("abc", "abc"), ("b", "c")], []])
def test_of_several_devices_they_are_those_of_all_texts(own, others):
    """One of them may have read none."""
    metric, beside = (scored(pairs) if pairs else new() for pairs in (own, others))
    empty = [*[torch.empty(0, 7, dtype=torch.int32)] * 2, torch.empty(0, 1, dtype=torch.bool)]
    theirs = iter([*map(torch.cat, (beside.written, beside.wanted, beside.belongs))] if others else empty)
    metric.distributed_available_fn = lambda: True
    metric.dist_sync_fn = lambda state, group: [state, next(theirs)]
    together, expected = metric.compute(), dict.fromkeys(("exact", "cer", "exact_short"), torch.tensor(torch.nan))
    if own or others:
        expected = scored(own + others).compute()
    for name in ("exact", "cer", "exact_short"):
        torch.testing.assert_close(together[name], expected[name], atol=0, rtol=0, equal_nan=True)


def test_what_stands_behind_an_end_does_not_count_and_no_texts_give_nan():
    metric = TextErrors(VOCABULARY, max_length=7)
    assert metric.compute()["exact"].isnan()
    metric.update(torch.tensor([[3, 2, 4, 5]]), torch.tensor([[3, 2]]))
    assert metric.compute()["exact"] == 1
    assert metric.compute()["cer"] == 0
    metric.reset()
    assert metric.compute()["cer"].isnan()
    metric.update(torch.tensor([[3, 3, 3]]), torch.tensor([[3, 2, 0]]))  # a text without an end
    assert {name: value.item() for name, value in metric.compute().items()} == {"exact": 0, "cer": 2}


def test_counting_a_batch_asks_the_device_for_nothing():
    """A sync would need numbers, which tensors of shapes alone do not have."""
    metric = TextErrors(VOCABULARY, max_length=7)
    metric.update(
        torch.empty(2, 5, dtype=torch.long, device="meta"), torch.empty(2, 4, dtype=torch.long, device="meta")
    )
    assert metric.written[0].shape == (2, 7)
