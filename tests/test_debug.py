"""debug=: presets that try a training in seconds, with any recipe."""

import csv

import pytest
from conftest import refuses

from vitlab.config.composition import compose, initialize_hydra

RECIPES = ["digits", "cifar10_cpu", "digit_questions", "deit3_b16_imagenet", "few_labels_mae"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_preset_holds_over_what_a_recipe_states(recipe):
    with initialize_hydra("train"):
        fast, overfit, profile = (
            compose("train", [f"recipe={recipe}", f"debug={name}"]).cfg for name in ("fast_run", "overfit", "profile")
        )
    assert fast.name == overfit.name == profile.name == "debug"
    assert (fast.trainer.max_epochs, fast.trainer.limit_test_batches, fast.logger) == (1, 2, {})
    assert (overfit.mixing, overfit.augmentation, overfit.optimizer.weight_decay) == ({}, {}, 0)
    assert overfit.schedule._target_ == "vitlab.optim.constant"
    assert (profile.trainer.max_steps, profile.trainer.max_epochs) == (20, -1)


def test_a_fast_run_takes_two_steps_and_says_that_it_is_partial(cli):
    run = cli("train", "debug=fast_run", folder="run")
    assert run.status == 0, run.err
    assert "not every sample was used" in run.out
    assert [row["step"] for row in read_metrics(run.folder)] == ["2"]


@pytest.mark.slow
def test_a_sound_model_learns_few_images_by_heart(cli):
    run = cli("train", "debug=overfit", "optimizer.lr=3e-3", folder="run")
    assert run.status == 0, run.err
    assert float(read_metrics(run.folder)[-1]["train/acc1"]) == 1
    assert "train/acc1 100.00%" in next(line for line in run.out.splitlines() if line.startswith("learned"))


@pytest.mark.slow
def test_a_profile_tells_where_the_time_goes(cli):
    run = cli("train", "debug=profile", folder="run")
    assert run.status == 0, run.err
    table = (run.folder / "profile" / "fit-table.txt").read_text()
    assert "aten::" in table
    assert list((run.folder / "profile").glob("fit-table-*.pt.trace.json"))


def test_the_table_of_a_profiler_of_lightning_is_in_the_log(cli):
    run = cli("train", "debug=fast_run", "trainer.profiler=simple", folder="run")
    assert run.status == 0, run.err
    assert "run_training_batch" in (run.folder / "train.log").read_text()


def test_one_preset_at_a_time(cli):
    assert refuses(cli("train", "debug=[fast_run,overfit]"), "debug= takes a single name, not a list")


def read_metrics(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))
