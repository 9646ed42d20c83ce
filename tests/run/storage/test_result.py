"""What is said of a result, and which settings of a trainer leave samples out."""

from types import SimpleNamespace

from vitlab.run.storage.result import Result, partial_use

DONE = {
    "score": 0.5,
    "best_step": 20,
    "steps": 1200,
    "steps_of_this_start": 1200,
    "test": {},
    "last": {},
    "calibration": None,
    "seconds": 61.2,
}


def test_a_whole_result_says_time_and_speed():
    facts = Result(**DONE, images_per_second=1234.5, skipped={}, partial=[]).facts("images")
    assert facts == {"time": "61 s for 1,200 steps, best at step 20", "speed": "1,234 images/s in training"}


def test_a_resumed_run_says_how_many_steps_are_new():
    result = Result(**(DONE | {"steps_of_this_start": 200}), images_per_second=None, skipped={}, partial=[])
    assert result.facts("images")["time"] == "61 s for 1,200 steps, 200 of them in this start, best at step 20"


def test_a_calibrated_model_says_so():
    found = {"temperature": 0.5, "samples": 9, "before": {"ece": 0.1}, "after": {"ece": 0.0125}}
    result = Result(**(DONE | {"calibration": found}), images_per_second=None, skipped={}, partial=[])
    assert result.facts("images")["calibrated"] == (
        "temperature 0.500, fitted on validation: calibration error 10.00% before, 1.25% after"
    )


def test_a_calibration_error_that_has_grown_is_explained():
    found = {"temperature": 0.5, "samples": 9, "before": {"ece": 0.1}, "after": {"ece": 0.125}}
    result = Result(**(DONE | {"calibration": found}), images_per_second=None, skipped={}, partial=[])
    assert "12.50% after: higher, because the temperature is fitted to nll" in result.facts("images")["calibrated"]


def test_samples_that_were_left_out_are_said():
    facts = Result(**DONE, images_per_second=None, skipped={"test": 3}, partial=["fast_dev_run"]).facts("images")
    assert facts["skipped"] == "3 unreadable images in test"
    assert facts["partial"] == "not every sample was used: fast_dev_run"
    assert "speed" not in facts


def test_limits_below_all_are_partial():
    trainer = SimpleNamespace(fast_dev_run=0, limit_train_batches=1.0, limit_val_batches=0.5, limit_test_batches=3)
    assert partial_use(trainer) == ["limit_val_batches", "limit_test_batches"]
    trainer.fast_dev_run = 1
    assert partial_use(trainer) == ["fast_dev_run"]
