"""The temperature of a finished run belongs to the weights that it was fitted to."""

import json

import pytest

from vitlab.run.inference.calibration import read_calibration

RESULT = {"score": 0.5, "best_step": 20, "calibration": {"temperature": 2}}


@pytest.mark.parametrize(
    ("result", "step", "temperature"),
    [
        (RESULT, 20, 2.0),
        (RESULT, 40, None),  # of other weights
        (RESULT | {"calibration": None}, 20, None),
        ({"score": 0.5, "best_step": 20}, 20, None),
        (None, 20, None),  # a run that has not ended
    ],
)
def test_a_temperature_is_that_of_the_best_weights(tmp_path, result, step, temperature):
    if result is not None:
        (tmp_path / "result.json").write_text(json.dumps(result))
    assert read_calibration(tmp_path, {"global_step": step}).get("temperature") == temperature
