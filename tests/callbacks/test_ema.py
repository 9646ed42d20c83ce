"""From its first update on, the average is what gets validated and kept; before that, the weights themselves."""

import json

import pytest
import torch
from conftest import BARE, evaluated
from line import EPOCHS, STEPS, check_places, fitted

from vitlab.callbacks import EMA
from vitlab.checkpoints import file
from vitlab.errors import ConfigError

DECAY = 0.7


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("start_step", "accumulation"), [(0, 1), (5, 1), (11, 1), (5, 2)])
def test_the_average_takes_the_place_of_the_weights_from_its_first_update_on(tmp_path, start_step, accumulation):
    ema = EMA(decay=DECAY, start_step=start_step)
    model = fitted(tmp_path, ema, accumulation)

    def mean_after(step):
        mean = None
        for number in range(start_step, step):  # optimizer step `number`, counted from 0, leads to state number + 1
            weight = model.after_step[number + 1]
            mean = weight if mean is None else DECAY * mean + (1 - DECAY) * weight
        return mean

    check_places(model, ema, mean_after)
    if start_step < EPOCHS * STEPS - 1:  # an average that does nothing would be the last weights
        assert (mean_after(EPOCHS * STEPS) - model.after_step[EPOCHS * STEPS]).abs().max() > 1e-3


def test_an_average_that_would_never_begin_is_refused():
    EMA(decay=DECAY, start_step=11).plan(12)
    with pytest.raises(ConfigError, match=r"callbacks\.ema\.start_step 12 is not before the end of the run of 12"):
        EMA(decay=DECAY, start_step=12).plan(12)


@pytest.mark.filterwarnings("ignore")
def test_the_average_is_torchs(tmp_path):
    ema = EMA(decay=DECAY, start_step=0)
    model = fitted(tmp_path, ema)
    average = torch.zeros_like(model.after_step[1])
    torchs = torch.optim.swa_utils.get_ema_multi_avg_fn(DECAY)
    average.copy_(model.after_step[1])
    for step in range(2, EPOCHS * STEPS + 1):
        torchs([average], [model.after_step[step]], None)
    torch.testing.assert_close(model.weight(), average, atol=0, rtol=0)


@pytest.mark.ci
@pytest.mark.slow
def test_the_average_is_what_is_validated_kept_as_the_best_and_tested(cli):
    options = [*BARE, "callbacks=[default,ema]", "callbacks.ema.decay=0.5", "trainer.max_steps=4", "optimizer.lr=1e-2"]
    run = cli("train", *options, folder="run")
    assert run.status == 0, run.err
    best, latest = (file.read(run.folder / "checkpoints" / f"{name}.ckpt") for name in ("best", "latest"))
    assert all(best["state_dict"][name].equal(value) for name, value in latest["state_dict"].items())
    plain = latest["current_model_state"]
    assert any(not value.equal(plain[name]) for name, value in best["state_dict"].items())
    result = json.loads((run.folder / "result.json").read_text())
    for split, told in (("val", result["last"]["val/loss"]), ("test", result["test"]["test/loss"])):
        assert cli("evaluate", "run=run", f"split={split}").status == 0
        found = evaluated(run.folder, split)
        assert found[f"{split}/loss"] == pytest.approx(told, rel=1e-5)
