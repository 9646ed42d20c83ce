"""Conditions on runs mean what they say, for numbers, texts, null and keys that only some runs have."""

from pathlib import Path

import pytest

from vitlab.errors import ConfigError
from vitlab.reports.index import IndexedRun
from vitlab.reports.selection import differing, full_key, order, select

RUNS = [
    IndexedRun(
        Path("a"), True, {"model.depth": 12, "test/acc1": 0.9, "name": "vit_digits", "seed": 0, "loss.eps": None}
    ),
    IndexedRun(Path("b"), True, {"model.depth": 6, "test/acc1": 0.7, "name": "vit_cifar", "seed": 0, "loss.e": 0.1}),
    IndexedRun(Path("c"), False, {"model.depth": 12, "name": "mae", "seed": 0, "optimizer.lr": "auto"}),
]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        ([], "abc"),
        (["model.depth=12"], "ac"),
        (["depth=12", "acc1>0.8"], "a"),
        (["test/acc1<=0.7"], "b"),
        (["acc1!=0.9"], "bc"),
        (["name~digits"], "a"),
        (["name = mae"], "c"),
        (["loss.e=null"], "ac"),
        (["lr>0.1"], ""),
        (["depth>=6", "depth<12"], "b"),
        (["depth==6"], "b"),
    ],
)
def test_the_runs_that_fulfil_all(conditions, names):
    assert "".join(str(run.folder) for run in select(RUNS, conditions)) == names


@pytest.mark.parametrize("condition", ["depth", "=12", "depth=[", "a b=1"])
def test_what_is_no_condition_is_refused(condition):
    with pytest.raises(ConfigError):
        select(RUNS, [condition])


def test_a_key_is_named_by_its_end_if_that_is_clear():
    assert full_key(RUNS, "depth") == "model.depth"
    with pytest.raises(ConfigError, match=r"no run has a key dept; did you mean"):
        full_key([IndexedRun(Path("a"), True, {"depth": 1})], "dept")
    several = [IndexedRun(Path("a"), True, {"model.depth": 1, "decoder.depth": 1})]
    with pytest.raises(ConfigError, match=r"several keys: decoder\.depth, model\.depth"):
        full_key(several, "depth")


def test_runs_without_the_value_come_last_and_constant_settings_do_not_differ():
    assert [str(run.folder) for run in order(RUNS, "test/acc1", best_first=True)] == ["a", "b", "c"]
    assert [str(run.folder) for run in order(RUNS, "model.depth", best_first=False)] == ["b", "a", "c"]
    assert "seed" not in differing(RUNS)
    assert "model.depth" in differing(RUNS)
    copies = [IndexedRun(Path(str(k)), True, {"batch": k, "data.batch": k, "lr": k // 2}) for k in range(4)]
    assert differing(copies) == ["batch", "lr"]  # data.batch refers to batch


def test_settings_that_a_user_has_set_stand_for_others_and_come_first():
    values = [
        {"model._target_": f"{k}", "loss": k, "optimizer.lr": k, "lr": k, "model.depth": k // 2} for k in range(4)
    ]
    runs = [IndexedRun(Path(str(k)), True, each, ("optimizer.lr", "seed")) for k, each in enumerate(values)]
    assert differing(runs) == ["optimizer.lr", "model.depth"]
    targets = [IndexedRun(Path(str(k)), True, {"model._target_": k, "model.embed_dim": k}) for k in range(2)]
    assert differing(targets) == ["model.embed_dim"]
