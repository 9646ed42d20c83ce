"""Finished runs compared: what is said of recipes and models, what is written, and what is refused."""

import csv
import json
from collections import Counter

import numpy as np
import pytest
import yaml
from conftest import refuses

from vitlab.reports.comparison import Recipe, compare
from vitlab.reports.finished import read_run


def write_run(folder, name, seed, right, *, lr=1e-3, result=True, images=200, partial=(), mean=None):
    """A run's folder with what the comparison reads; `right` says of each test image whether it is recognised."""
    folder.mkdir(parents=True)
    config = {"name": name, "seed": seed, "monitor": "val/acc1", "optimizer": {"lr": lr}, "data": {"seed": seed}}
    if mean is not None:
        config |= {"data": {"seed": seed, "mean": [mean]}, "found": {"mean": [mean]}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    test = {"test/acc1": float(np.mean(right)), "test/loss": 1 - float(np.mean(right))}
    if result:
        (folder / "result.json").write_text(json.dumps({"score": 0.5, "test": test, "partial": list(partial)}))
    rows = [[i, f"{i}.png", "cat", "cat" if right[i] else "dog", 0.9, 0.1] for i in range(images)]
    with (folder / "test_predictions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["index", "name", "true", "predicted", "probability", "loss"], *rows])
    return folder


def write_recipe(folder, name, accuracies, **options):
    return [
        str(write_run(folder / f"{name}_{seed}", name, seed, np.arange(200) < accuracy * 200, **options))
        for seed, accuracy in enumerate(accuracies)
    ]


@pytest.fixture
def run_compare(cli, tmp_path, monkeypatch):
    """run_compare(runs, *words) -> what it prints, and the folder it writes."""
    monkeypatch.chdir(tmp_path)

    def call(runs, *words):
        done = cli("compare", f"runs=[{','.join(map(str, runs))}]", f"output={tmp_path / 'out'}", *words, tiny=False)
        assert done.status == 0, done.err
        return done.out, tmp_path / "out"

    return call


def test_six_seeds_that_all_agree_are_a_verdict(tmp_path, run_compare):
    a = write_recipe(tmp_path, "small", [0.70, 0.71, 0.69, 0.72, 0.70, 0.71])
    b = write_recipe(tmp_path, "large", [0.80, 0.82, 0.80, 0.83, 0.79, 0.80], lr=5e-3)
    told, out = run_compare([*a, *b])
    assert (
        "large is better than small by 10.17 ± 1.03 points in test/acc1 (six seeds; exact sign-flip test: p = 0.031)"
        in told
    )
    rows = list(csv.DictReader((out / "differences.csv").open()))
    assert (rows[0]["both_right"], rows[0]["only_second"]) == ("846", "122")
    assert 0.05 < float(rows[0]["interval_low"]) < 0.1017 < float(rows[0]["interval_high"]) < 0.15
    assert list(csv.DictReader((out / "settings.csv").open())) == [
        {"key": "optimizer.lr", "small": "0.001", "large": "0.005"}
    ]
    assert r"optimizer.lr & 0.001 & 0.005 \\" in (out / "settings.tex").read_text()
    assert "| optimizer.lr | 0.001 | 0.005 |" in (out / "comparison.md").read_text()


def test_three_seeds_name_the_assumption(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7, 0.71, 0.7]), write_recipe(tmp_path, "b", [0.8, 0.815, 0.8], lr=2e-3)
    told, _ = run_compare([*a, *b])
    assert (
        "b is better than a by 10.17 ± 0.72 points in test/acc1 (three seeds; if differences over seeds are normally "
        "distributed, Student's t test: p = 0.00027; the exact test needs six seeds for p < 0.05)"
    ) in told


def test_a_verdict_holds_for_all_comparisons_together(tmp_path, run_compare):
    """Student's interval of the pair alone leaves out 0; with three comparisons that is no verdict."""
    runs = []
    for name, accuracies in (("a", [0.3, 0.3, 0.3]), ("b", [0.475, 0.55, 0.625]), ("c", [0.4, 0.45, 0.5])):
        runs += write_recipe(tmp_path, name, accuracies, lr=ord(name))
    told, out = run_compare(runs)
    rows = list(csv.DictReader((out / "differences.csv").open()))
    assert all(abs(float(row["gain"])) > float(row["half"]) for row in rows)
    assert {row["comparisons"] for row in rows} == {"3"}
    assert {row["test"] for row in rows} == {"Student's t"}
    assert all(float(row["holm_p"]) > 0.05 for row in rows)
    assert "is better" not in told
    assert told.count("after Holm's adjustment for three comparisons; the exact test needs seven seeds") == 3


def test_a_difference_that_is_not_shown_says_who_is_ahead_and_how_sure_that_is(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.70, 0.75, 0.8]), write_recipe(tmp_path, "b", [0.72, 0.7, 0.73], lr=2e-3)
    assert (
        "No difference between a and b is shown in test/acc1: on average, a is ahead by 3.33 points, with a 95 % "
        "interval from -8.41 to 15.07 (three seeds; if"
    ) in run_compare([*a, *b])[0]


def test_an_interval_of_shares_holds_shares(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.1, 0.95]), write_recipe(tmp_path, "b", [0.99, 0.9], lr=2e-3)
    told, out = run_compare([*a, *b])
    assert "a 95 % interval from -100.00 to 100.00" in told
    rows = {row["metric"]: row for row in csv.DictReader((out / "means.csv").open()) if row["recipe"] == "a"}
    assert (float(rows["test/acc1"]["student_low"]), float(rows["test/acc1"]["student_high"])) == (0, 1)
    assert float(rows["test/loss"]["student_low"]) < 0  # a loss is no share


def test_two_runs_are_two_models(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7]), write_recipe(tmp_path, "b", [0.8], lr=2e-3)
    told, out = run_compare([*a, *b])
    assert "The two models differ (McNemar: p < 0.0001): test/acc1 80.00% (b) against 70.00% (a)" in told
    assert "of 200 test samples b alone is right on 20, a alone on 0. One seed each: this is a statement on two" in told
    rows = list(csv.DictReader((out / "samples.csv").open()))
    assert Counter(row["right"] for row in rows) == {"b": 20, "neither": 40, "both": 140}
    of = {"index": "140", "name": "140.png", "seed": "0", "true": "cat"}
    assert rows[0] == of | {"a": "dog", "b": "cat", "right": "b"}
    assert [row["right"] for row in rows[20:60]] == ["neither"] * 40
    assert "The first 100 of 200; samples.csv contains all." in (out / "comparison.md").read_text()


def test_a_loss_is_better_when_it_is_smaller(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7]), write_recipe(tmp_path, "b", [0.8], lr=2e-3)
    assert "test/loss: 0.2000 (b) against 0.3000 (a). One seed each" in run_compare([*a, *b], "metric=loss")[0]


def test_many_recipes_are_adjusted_together(tmp_path):
    rng = np.random.default_rng(0)
    recipes = []
    for name in "abcd":
        folders = write_recipe(tmp_path, name, 0.7 + 0.02 * rng.normal(size=7), lr=ord(name))
        recipes.append(Recipe(name, {run.seed: run for run in map(read_run, map(tmp_path.__truediv__, folders))}))
    pairs = compare(recipes, "test/acc1")
    assert len(pairs) == 6
    assert all(pair.adjusted >= pair.p for pair in pairs)
    assert min(pair.adjusted for pair in pairs) >= min(1, 6 * 2.0**-6)


def test_values_found_in_the_data_make_no_other_recipe(tmp_path, run_compare):
    a = [write_run(tmp_path / f"a{seed}", "a", seed, np.arange(200) < 150 + seed, mean=0.3 + seed) for seed in (0, 1)]
    b = [write_run(tmp_path / f"b{seed}", "b", seed, np.arange(200) < 160, lr=7, mean=0.3 + seed) for seed in (0, 1)]
    told, out = run_compare([*a, *b])
    assert "two seeds" in told
    assert [row["key"] for row in csv.DictReader((out / "settings.csv").open())] == ["optimizer.lr"]


def test_equal_gains_of_two_seeds_are_no_certainty(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7, 0.7]), write_recipe(tmp_path, "b", [0.8, 0.8], lr=2e-3)
    assert "No difference between a and b is shown" in run_compare([*a, *b])[0]


def test_a_run_that_diverged_is_named(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    a, b = write_recipe(tmp_path, "a", [0.7]), write_recipe(tmp_path, "b", [0.8], lr=2e-3)
    path = tmp_path / "b_0" / "result.json"
    path.write_text(path.read_text().replace(str(json.loads(path.read_text())["test"]["test/loss"]), "null"))
    done = cli("compare", f"runs=[{a[0]},{b[0]}]", "metric=loss", tiny=False)
    assert refuses(done, "test/loss of ")
    assert "is not finite; leave the run out, or compare another metric" in done.err


def test_a_run_without_its_samples_is_compared_by_its_metrics(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7] * 6), write_recipe(tmp_path, "b", [0.8] * 6, lr=2e-3)
    (tmp_path / b[2] / "test_predictions.csv").unlink()
    told, _ = run_compare([*a, *b])
    assert "b is better than a by 10.00 ± 0.00 points" in told
    assert f"Samples are not compared: {b[2]} has no test_predictions.csv" in told


def test_a_seed_that_one_recipe_lacks_is_said(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7, 0.71, 0.7]), write_recipe(tmp_path, "b", [0.8, 0.81], lr=2e-3)
    assert "a: seed 2 left out, which b does not have." in run_compare([*a, *b])[0]


def test_what_cannot_be_compared_is_refused(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)

    def refused(folders, sentence, *words, status=2):
        done = cli("compare", f"runs=[{','.join(map(str, folders))}]", *words, tiny=False)
        assert refuses(done, sentence), done.err
        assert done.status == status

    a, b = write_recipe(tmp_path, "a", [0.7, 0.8]), write_recipe(tmp_path, "b", [0.8], lr=2e-3)
    refused(a, "runs= names only one recipe (a with seeds 0, 1); add another one to compare")
    refused([a[0], a[0]], "are the same recipe with seed 0; leave one out")
    refused([*a, tmp_path / "nothing"], "nothing is not the folder of a run: it has no config.yaml", status=4)
    unfinished = write_run(tmp_path / "c", "c", 0, np.ones(200), result=False)
    refused([*b, unfinished], "has no result, because its training has not ended", status=4)
    other = write_run(tmp_path / "d", "d", 0, np.ones(100), lr=7, images=100)
    refused([*b, other], "were not tested on the same samples: 200 and 100, 100 of them the same", status=3)
    partial = write_run(tmp_path / "e", "e", 0, np.ones(200), lr=8, partial=["limit_test_batches"])
    refused([*b, partial], "was not tested on every sample (limit_test_batches); leave it out")
    late = [str(write_run(tmp_path / f"f{seed}", "f", seed, np.ones(200), lr=9)) for seed in (5, 6)]
    refused([*a, *late], "a and f have no seed in common: seeds 0, 1 against seeds 5, 6")
    refused([*a, *b], "has no metric val/acc5; it has test/acc1, test/loss, val/acc1", "metric=val/acc5")
    refused([*a, *b], "by= needs sweep= or study=; leave it out with runs=", "by=optimizer.lr")
    done = cli("compare", tiny=False)
    assert refuses(done, "nothing to compare; give one of runs=[A,B], sweep=NAME or study=NAME")
    done = cli("compare", "sweep=none", tiny=False)
    assert refuses(done, "there is no sweep none")
    assert not (tmp_path / "runs").exists()


def test_a_validation_score_is_compared_like_a_test_metric(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7, 0.8]), write_recipe(tmp_path, "b", [0.8, 0.7], lr=2e-3)
    told, out = run_compare([*a, *b], "metric=val/acc1")
    assert "No difference between a and b is shown in val/acc1: on average, a is ahead by 0.00 points" in told
    assert {row["metric"] for row in csv.DictReader((out / "means.csv").open())} == {
        "test/acc1",
        "test/loss",
        "val/acc1",
    }


def test_runs_that_were_judged_by_different_metrics_are_compared_by_the_accuracy_and_that_is_said(
    tmp_path, run_compare
):
    a, b = write_recipe(tmp_path, "a", [0.7]), write_recipe(tmp_path, "b", [0.8], lr=2e-3)
    path = tmp_path / "a_0" / "config.yaml"
    path.write_text(path.read_text().replace("val/acc1", "val/loss"))
    told, _ = run_compare([*a, *b])
    assert "judged by different metrics (val/loss, val/acc1); test/acc1 is compared. metric= sets another." in told
    assert "test/acc1 80.00% (b) against 70.00% (a)" in told


def test_the_settings_that_a_user_set_come_first(tmp_path, run_compare):
    a, b = write_recipe(tmp_path, "a", [0.7]), write_recipe(tmp_path, "b", [0.8], lr=2e-3)
    for folder, epochs in ((a[0], 3), (b[0], 4)):
        config = {**yaml.safe_load((tmp_path / folder / "config.yaml").read_text()), "trainer": {"max_epochs": epochs}}
        (tmp_path / folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        (tmp_path / folder / "provenance.json").write_text(
            json.dumps([{"command": f"vitlab train trainer.max_epochs={epochs}"}])
        )
    _, out = run_compare([*a, *b])
    assert [row["key"] for row in csv.DictReader((out / "settings.csv").open())] == [
        "trainer.max_epochs",
        "optimizer.lr",
    ]
