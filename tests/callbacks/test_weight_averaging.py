"""What all averages of weights share: exact resume, and that there is one. tests/test_resume.py kills in mid-epoch."""

from types import SimpleNamespace

import pytest
import torch
from line import EPOCHS, STEPS, fitted

from vitlab.callbacks import EMA, SWA, ChecksRun, LatestState
from vitlab.errors import ConfigError

AVERAGES = {
    "ema": lambda: EMA(decay=0.7, start_step=0),
    "late_ema": lambda: EMA(decay=0.7, start_step=6),
    "swa": lambda: SWA(start_ratio=0.2, every_n_steps=3),  # 2, 5, 8, 11
    "late_swa": lambda: SWA(start_ratio=0.5, every_n_steps=1),
}


def same(a, b):
    """Whether two nested states are equal, bit for bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AVERAGES)
def test_a_run_resumed_from_its_midst_is_the_uninterrupted_one(tmp_path, name):
    """Before the average has begun, and after."""
    (tmp_path / "whole").mkdir()
    whole = fitted(tmp_path / "whole", AVERAGES[name]())
    for step in (STEPS, 2 * STEPS):
        folder = tmp_path / f"from{step}"
        folder.mkdir()
        resumed = fitted(folder, AVERAGES[name](), resume=tmp_path / "whole" / f"{step}.ckpt")
        assert min(resumed.validated) == step + STEPS
        for later in resumed.validated:
            assert torch.equal(resumed.validated[later], whole.validated[later])
        last = f"{EPOCHS * STEPS}.ckpt"
        states = [torch.load(path / last, weights_only=True) for path in (folder, tmp_path / "whole")]
        for key in ("state_dict", "current_model_state", "averaging_state", "callbacks"):
            assert same(states[0][key], states[1][key]), key


def check_all(*callbacks):
    """As a run of 12 steps does before it starts."""
    for callback in callbacks:
        if isinstance(callback, ChecksRun):
            callback.check_run(SimpleNamespace(callbacks=list(callbacks)), SimpleNamespace(num_steps=12), None)


def test_only_one_average_can_take_the_place_of_the_weights():
    check_all(LatestState(every_n_steps=1), AVERAGES["ema"]())
    check_all(LatestState(every_n_steps=1), AVERAGES["swa"]())
    with pytest.raises(ConfigError, match="leave out one of them"):
        check_all(AVERAGES["ema"](), LatestState(every_n_steps=1), AVERAGES["swa"]())
    with pytest.raises(ConfigError, match="nothing would be averaged"):
        check_all(SWA(start_ratio=0.0, every_n_steps=13))
