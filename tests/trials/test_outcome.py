"""Trials compared: by accuracy, and where chance decides that, by loss."""

import json

from vitlab.trials.outcome import Outcome, choose, read_outcome


def outcome(name, accuracy, loss=1.0, **more):
    return Outcome(name, 100, 50, 10.0, 0.05, accuracy, loss, **more)


def test_a_clear_difference_decides():
    best, why = choose([outcome("a", 0.80, 0.5), outcome("b", 0.90, 0.9)], num_images=1000)
    assert best.name == "b"
    assert "highest" in why


def test_within_the_error_the_loss_decides():
    best, why = choose([outcome("a", 0.89, 0.3), outcome("b", 0.90, 0.9)], num_images=100)
    assert best.name == "a"
    assert "val/loss 0.3000" in why
    assert "b" in why


def test_perfect_accuracies_of_few_images_are_alike():
    assert choose([outcome("a", 1.0, 0.3), outcome("b", 1.0, 0.2)], num_images=20)[0].name == "b"


def test_a_failed_trial_is_not_chosen():
    best, why = choose([outcome("a", 0.99, failed="the loss is nan"), outcome("b", 0.5)], num_images=100)
    assert best.name == "b"
    assert "only" in why


def test_what_a_run_has_shown_is_read(tmp_path):
    last = {"val/acc1": 0.75, "val/loss": 0.5}
    result = {"score": 0.5, "test": {}, "last": last, "images_per_second": 500.0, "seconds": 5.0}
    (tmp_path / "result.json").write_text(json.dumps(result))
    found = read_outcome("a", tmp_path, steps=40, batch_size=50, seconds=7.0)
    assert (found.accuracy, found.loss, found.step_seconds) == (0.75, 0.5, 0.1)
    assert (found.other_seconds, found.validation_seconds) == (3.0, 1.0)


def test_a_run_without_a_validation_has_failed(tmp_path):
    assert read_outcome("a", tmp_path, 40, 50, 7.0).failed
