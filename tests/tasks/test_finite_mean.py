import pytest
import torch

from vitlab.tasks.task import FiniteMean


@pytest.mark.parametrize("odd", [float("inf"), -float("inf"), float("nan")])
def test_what_is_not_finite_does_not_count(odd):
    mean = FiniteMean()
    for value in (4.0, odd, 2.0):
        mean.update(torch.tensor(value))
    assert mean.compute() == 3.0
    mean.reset()
    mean.update(torch.tensor([1.0, odd, 4.0]))
    assert mean.compute() == 2.5
