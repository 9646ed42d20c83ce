"""How long a step takes: medians of its parts, without the first step, until the time is over."""

from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning.demos.boring_classes import BoringDataModule, BoringModel

from vitlab.run.hardware import step_timing
from vitlab.run.hardware.step_timing import Speed, Stopwatch


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(time=100.0)
    monkeypatch.setattr(step_timing, "read_clock", lambda module: clock.time)
    return clock


def train(stopwatch, clock, steps):
    """Take steps of (reading, learning, updating) seconds, until it asks to stop; return how many were taken."""
    trainer = SimpleNamespace(should_stop=False)
    stopwatch.on_train_start(trainer, None)
    for number, (reading, learning, updating) in enumerate(steps, start=1):
        clock.time += reading
        stopwatch.on_train_batch_start(trainer, None, None, number)
        clock.time += learning
        stopwatch.on_before_optimizer_step(trainer, None, None)
        clock.time += updating
        stopwatch.on_train_batch_end(trainer, None, None, None, number)
        if trainer.should_stop:
            break
    return number


def test_the_parts_of_a_step_are_medians_and_the_first_step_is_left_out(clock):
    stopwatch = Stopwatch(seconds=1000.0)
    train(stopwatch, clock, [(90, 90, 90), (1, 8, 2), (3, 4, 50), (2, 80, 1)])
    assert stopwatch.speed(batch_size=4) == pytest.approx(Speed(reading=0.5, learning=2.0, updating=2.0))


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, 2), (2.0, 2), (6.0, 3), (6.5, 3), (1000.0, 5)])
def test_it_ends_once_the_time_is_over_but_not_before_two_steps(clock, seconds, steps):
    assert train(Stopwatch(seconds), clock, [(1, 1, 1)] * 5) == steps


def test_a_cpu_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: pytest.fail("it waits"))
    module = SimpleNamespace(device=torch.device("cpu"))
    assert step_timing.read_clock(module) <= step_timing.read_clock(module)


def test_a_gpu_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    device = torch.device("cuda", 1)
    step_timing.read_clock(SimpleNamespace(device=device))
    assert waited == [device]


def test_a_real_training_ends_within_its_first_epoch(tmp_path, monkeypatch):
    """Lightning takes `min_steps` without `min_epochs` for at least one epoch."""
    monkeypatch.chdir(tmp_path)
    task, data = BoringModel(), BoringDataModule()  # 64 batches
    task.plan = lambda *_: None
    data.attach = lambda trainer: 1
    data.plan = lambda: None
    like = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cpu")), precision="32-true")
    step_timing.measure_steps(task, data, like, seconds=0.0)
    assert task.trainer.global_step == 2
