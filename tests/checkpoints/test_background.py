import threading

import pytest
import torch

from vitlab.checkpoints import writer
from vitlab.checkpoints.background import Background
from vitlab.checkpoints.writer import Writer


def test_all_is_done_in_the_order_in_which_it_was_begun():
    background, done = Background(), []
    for number in range(20):
        background.begin(lambda number=number: done.append(number), lambda number=number: done.append(-number))
    background.finish()
    assert done == [sign * number for number in range(20) for sign in (1, -1)]


def test_after_a_failure_nothing_else_is_done_and_the_next_call_raises_it():
    background, gate, done = Background(), threading.Event(), []

    def fail():
        gate.wait()
        raise OSError("full")

    background.begin(fail)
    background.begin(lambda: done.append(1))
    gate.set()
    with pytest.raises(OSError, match="full"):
        background.finish()
    with pytest.raises(OSError, match="full"):
        background.finish()
    assert done == []
    background.finish()


@pytest.mark.parametrize("on", ["begin", "check", "finish"])
def test_what_is_held_begins_with_the_next_call(on):
    background, done = Background(), threading.Event()
    held = background.begin(done.set, held=True)
    assert not done.wait(0.1)
    getattr(background, on)()
    held.result()
    assert done.is_set()


def test_a_writer_waits_for_what_is_held_and_copies_it_before(monkeypatch):
    monkeypatch.setattr(writer, "LARGE", 0)
    own, written, weights = Writer(Background(), held=True), [], torch.ones(2)
    for number in (1, 2):
        own.write({"weights": weights.fill_(number)}, lambda copy: written.append(copy["weights"].tolist()))
        weights.zero_()
    own.finish()
    assert written == [[1, 1], [2, 2]]
