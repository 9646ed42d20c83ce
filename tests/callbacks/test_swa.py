"""The mean of the weights at certain steps takes their place, from the first of these steps on."""

import pytest
import torch
from line import EPOCHS, STEPS, check_places, fitted

from vitlab.callbacks import SWA
from vitlab.errors import ConfigError


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("start_ratio", "every", "accumulation", "steps"),
    [
        (0.0, 1, 1, list(range(1, 13))),
        (0.0, 5, 1, [5, 10]),
        (0.5, 1, 1, [6, 7, 8, 9, 10, 11, 12]),
        (0.5, 3, 2, [6, 9, 12]),
        (0.74, 2, 1, [9, 11]),
        (0.99, 100, 1, [12]),
    ],
)
def test_it_is_the_mean_of_the_weights_at_those_steps(tmp_path, start_ratio, every, accumulation, steps):
    swa = SWA(start_ratio=start_ratio, every_n_steps=every)
    model = fitted(tmp_path, swa, accumulation)

    def mean_after(step):
        weights = [model.after_step[number] for number in steps if number <= step]
        return torch.stack(weights).mean(dim=0) if weights else None

    check_places(model, swa, mean_after)
    assert swa.count == len(steps)
    if len(steps) > 1:
        assert (mean_after(EPOCHS * STEPS) - model.after_step[EPOCHS * STEPS]).abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore")
def test_a_run_made_longer_begins_anew_at_its_new_start(tmp_path):
    fitted(tmp_path, SWA(start_ratio=0.25, every_n_steps=1), epochs=1)  # steps 3 and 4
    swa = SWA(start_ratio=0.75, every_n_steps=1)
    model = fitted(tmp_path, swa, resume=tmp_path / f"{STEPS}.ckpt")
    mean = torch.stack([model.after_step[step] for step in (9, 10, 11, 12)]).mean(dim=0)
    torch.testing.assert_close(model.weight(), mean)
    assert model.validated[8].equal(model.after_step[8])  # not the mean of the shorter run


@pytest.mark.filterwarnings("ignore")
def test_a_run_made_longer_after_its_new_start_begins_anew_too(tmp_path):
    fitted(tmp_path, SWA(start_ratio=0.25, every_n_steps=1), epochs=1)  # steps 3 and 4
    swa = SWA(start_ratio=1 / 3, every_n_steps=1)  # from step 4 on, which is past
    model = fitted(tmp_path, swa, resume=tmp_path / f"{STEPS}.ckpt")
    mean = torch.stack([model.after_step[step] for step in range(5, 13)]).mean(dim=0)
    torch.testing.assert_close(model.weight(), mean)


def test_a_mean_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"every_n_steps 13 is longer than the run of 12"):
        SWA(start_ratio=0.0, every_n_steps=13).plan(12)
    SWA(start_ratio=0.0, every_n_steps=12).plan(12)
