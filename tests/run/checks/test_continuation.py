"""The checkpoint that a run resumes from cannot be set with run=, and whole."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vitlab.callbacks import EMA, BestModel
from vitlab.errors import CheckpointError, ConfigError
from vitlab.run.checks.continuation import check_continuation, check_weights

DATA = SimpleNamespace(fingerprint="the data", vocabularies=dict)
KEPT = {"best_model": {"_target_": "vitlab.callbacks.BestModel"}}


def task_of(outputs=2):
    """A model of two groups, which would end at step 20."""
    task = nn.Linear(3, outputs)
    task.groups = [{"name": "decay", "params": [task.weight]}, {"name": "no decay", "params": [task.bias]}]
    task.num_steps = 20
    return task


def best():
    return BestModel(monitor="val/loss", mode="min")


def ema():
    return EMA(decay=0.5, start_step=0)


def saved(task, *callbacks):
    """What a run of this task has saved after one step."""
    optimizer = torch.optim.AdamW(task.groups)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    task(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "run": {"fingerprint": "the data", "config": {"callbacks": KEPT if callbacks else {}}},
        "state_dict": task.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [rates.state_dict()],
        "callbacks": {callback.state_key: callback.state_dict() for callback in callbacks},
    }


def check(checkpoint, task, *callbacks, data=DATA, first_step=1):
    check_continuation(checkpoint, task, data, SimpleNamespace(callbacks=list(callbacks)), first_step)


def test_a_run_resumes_from_its_own_state():
    task = task_of()
    check(saved(task), task, first_step=20)
    check(saved(task, best()), task, best())
    check(saved(task, best()), task)  # a callback may be left out
    check(saved(task), task, best())  # or come anew


def test_other_data_another_end_another_model_and_other_groups_are_refused():
    task = task_of()
    with pytest.raises(CheckpointError, match="the data has changed since the run started"):
        check(saved(task), task, data=SimpleNamespace(fingerprint="other data", vocabularies=dict))
    with pytest.raises(ConfigError, match="has already done 21 steps, but would end at step 20"):
        check(saved(task), task, first_step=21)
    with pytest.raises(CheckpointError, match="belongs to another model"):
        check(saved(task_of(outputs=5)), task)
    checkpoint = saved(task)
    task.groups = [{"name": "all", "params": [task.weight, task.bias]}]
    with pytest.raises(ConfigError, match="the parameter groups differ from the run's"):
        check(checkpoint, task)


def test_the_weights_of_another_model_are_named():
    state = task_of().state_dict()
    check_weights(state, task_of())
    with pytest.raises(CheckpointError, match=r"bias is \(2,\) in it and \(5,\) in .* \(2 tensors differ\)"):
        check_weights(state, task_of(outputs=5))
    with pytest.raises(CheckpointError, match=r"more is \(1,\) in it and missing in .* \(1 tensors differ\)"):
        check_weights({**state, "more": torch.zeros(1)}, task_of())
    del state["weight"]
    with pytest.raises(CheckpointError, match=r"weight is missing in it and \(2, 3\)"):
        check_weights(state, task_of())


def test_an_average_is_kept():
    task = task_of()
    checkpoint = saved(task) | {"current_model_state": task.state_dict()}
    with pytest.raises(ConfigError, match=r"leave callbacks\.ema or callbacks\.swa in the config"):
        check(checkpoint, task, best())


def test_an_average_has_the_shapes_of_the_weights():
    task, average = task_of(), ema()
    checkpoint = saved(task, average) | {"averaging_state": {"n_averaged": torch.tensor(1)}}
    checkpoint["run"]["config"]["callbacks"] = {"ema": {"_target_": "vitlab.callbacks.EMA"}}
    with pytest.raises(CheckpointError, match="current_model_state has no"):
        check(checkpoint, task, ema())
    check(checkpoint | {"current_model_state": task.state_dict()}, task, ema())
    with pytest.raises(CheckpointError, match=r"bias is \(1,\) in it"):
        check(checkpoint | {"current_model_state": task.state_dict() | {"bias": torch.zeros(1)}}, task, ema())


def test_a_callback_that_had_a_state_has_one():
    task = task_of()
    checkpoint = saved(task, best())
    checkpoint["callbacks"] = {}
    with pytest.raises(CheckpointError, match="callbacks has no BestModel"):
        check(checkpoint, task, best())
    checkpoint["callbacks"] = {best().state_key: {"score": None, "step": 0, "monitor": "val/loss"}}
    with pytest.raises(CheckpointError, match=r"callbacks\.BestModel has no validated_step"):
        check(checkpoint, task, best())


def test_what_the_optimizer_kept_of_each_parameter_is_there_and_fits():
    def changed(change):
        checkpoint = saved(task)
        change(checkpoint["optimizer_states"][0])
        return checkpoint

    task = task_of()
    check(changed(lambda optimizer: optimizer["state"].clear()), task)  # of none, as where nothing was learned yet
    with pytest.raises(CheckpointError, match="the optimizer's exp_avg of 'decay' fits no parameter"):
        check(changed(lambda optimizer: optimizer["state"][0].update(exp_avg=torch.zeros(3, 2))), task)
    with pytest.raises(CheckpointError, match="the optimizer's step of 'no decay' fits no parameter"):
        check(changed(lambda optimizer: optimizer["state"][1].update(step="1")), task)
    with pytest.raises(CheckpointError, match="the optimizer's state of 'no decay' is incomplete"):
        check(changed(lambda optimizer: optimizer["state"].update({1: "none"})), task)
    checkpoint = changed(lambda optimizer: optimizer["state"].pop(1)) | {"num_optimizer_states": 2}
    with pytest.raises(CheckpointError, match="the optimizer's state of some parameters is missing"):
        check(checkpoint, task)


def test_parameters_of_one_group_have_the_same_state():
    task = task_of()
    task.groups = [{"name": "all", "params": [task.weight, task.bias]}]
    checkpoint = saved(task)
    check(checkpoint, task)
    del checkpoint["optimizer_states"][0]["state"][1]["exp_avg"]
    with pytest.raises(CheckpointError, match="the optimizer's state of 'all' is incomplete"):
        check(checkpoint, task)


def test_a_schedule_is_one_of_ours():
    task = task_of()
    checkpoint = saved(task)
    checkpoint["lr_schedulers"][0]["lr_lambdas"] = [None, {"power": 2}]
    with pytest.raises(CheckpointError, match="lr_lambdas is not empty"):
        check(checkpoint, task)
    del checkpoint["lr_schedulers"][0]["base_lrs"]
    with pytest.raises(CheckpointError, match=r"lr_schedulers\.0 has no base_lrs"):
        check(checkpoint, task)
