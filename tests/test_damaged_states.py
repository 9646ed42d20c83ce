"""A checkpoint with something missing or of another kind is refused in a sentence, status 4, or changes nothing."""

import copy
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from conftest import refuses

FROZEN = Path(__file__).parent / "earlier_version" / "run"


@pytest.fixture
def resumed(cli, tmp_path):
    """resumed(change): what comes of a run whose state has been changed."""
    shutil.copytree(FROZEN, tmp_path / "run")
    latest = tmp_path / "run" / "checkpoints" / "latest.ckpt"
    whole = torch.load(latest, weights_only=True)

    def resume(change):
        state = copy.deepcopy(whole)
        change(state)
        torch.save(state, latest)
        return cli("train", "resume=run", tiny=False)

    return resume


def deleted(*path):
    def change(state):
        *above, last = path
        for key in above:
            state = state[key]
        del state[last]

    return change


def replaced(value, *path):
    def change(state):
        *above, last = path
        for key in above:
            state = state[key]
        state[last] = value

    return change


OPTIMIZER = ("optimizer_states", 0)
CASES = {
    "run.config": deleted("run", "config"),
    "run.choices": deleted("run", "choices"),
    "run.fingerprint": deleted("run", "fingerprint"),
    "run.config has no data": deleted("run", "config", "data"),
    "lr_schedulers": deleted("lr_schedulers"),
    "lr_lambdas": deleted("lr_schedulers", 0, "lr_lambdas"),
    "lr_schedulers.0._step_count": replaced("abc", "lr_schedulers", 0, "_step_count"),
    "lr_lambdas is not empty": replaced(["abc"] * 2, "lr_schedulers", 0, "lr_lambdas"),
    "averaging_state.n_averaged": replaced("abc", "averaging_state", "n_averaged"),
    "pytorch-lightning_version": replaced("abc", "pytorch-lightning_version"),
    "logger is abc": replaced("abc", "run", "config", "logger"),
    "callbacks.latest_state is missing": deleted("run", "config", "callbacks", "latest_state"),
    "callbacks": deleted("callbacks"),
    "BestModel": deleted("callbacks", "BestModel"),
    "callbacks.BestModel has no monitor": deleted("callbacks", "BestModel", "monitor"),
    "callbacks.BestModel.step": replaced("abc", "callbacks", "BestModel", "step"),
    "loops": deleted("loops"),
    "sums is 'abc'": replaced("abc", "sums"),
    "sums.loss is 'abc'": replaced("abc", "sums", "loss"),
    "sums.loss.weight is 'abc'": replaced("abc", "sums", "loss", "weight"),
    "current_model_state": deleted("current_model_state"),
    "model.head.bias is (1,) in it": replaced(torch.zeros(1), "current_model_state", "model.head.bias"),
    "optimizer_states.0.state": deleted(*OPTIMIZER, "state"),
    "of 'no decay' is incomplete": deleted(*OPTIMIZER, "state", 0, "exp_avg"),
    "exp_avg of 'no decay'": replaced(torch.zeros(3), *OPTIMIZER, "state", 0, "exp_avg"),
    "step of 'no decay'": replaced("abc", *OPTIMIZER, "state", 0, "step"),
    "global_step is 'abc'": replaced("abc", "global_step"),
    "epoch is None": replaced(None, "epoch"),
    "data.global_batch_size abc is not a whole number": replaced("abc", "run", "config", "global_batch_size"),
    "optimizer.lr abc is not a number": replaced("abc", "run", "config", "optimizer", "lr"),
    "should be a tensor": replaced("abc", "state_dict", "model.head.bias"),
}


@pytest.mark.parametrize("words", CASES)
def test_what_is_missing_or_of_another_kind_is_named(resumed, words):
    run = resumed(CASES[words])
    assert run.status == 4, run.err
    assert refuses(run, words), run.err


def test_a_file_that_says_it_is_larger_than_it_is_is_not_unpacked(cli, tmp_path):
    """64 MB of zeros in 64 kB, as a checkpoint and as weights of somebody else's."""
    for name in ("bomb.ckpt", "bomb.pth"):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/version", "3\n")
            with archive.open("archive/data.pkl", "w", force_zip64=True) as record:
                for _ in range(64):
                    record.write(bytes(2**20))
    run = cli("train", "resume=bomb.ckpt")
    assert run.status == 4
    assert "states a larger size than it has" in run.err
    run = cli("train", "model.pretrained=bomb.pth")
    assert run.status == 4
    assert "states a larger size than it has" in run.err


def paths(node, above=()):
    """Every place in nested tables and lists, tables before what is in them."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(value, dict | list) and len(above) < 6:
            yield from paths(value, (*above, key))


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("part", ["run", "optimizer_states", "loops", "the rest"])
def test_no_place_of_a_state_can_be_cut_out_or_replaced_without_an_answer(cli, tmp_path, part):
    """Each place of the state, deleted and replaced by a text: a sentence, or a run that goes on."""
    latest = tmp_path / "run" / "checkpoints" / "latest.ckpt"
    whole = torch.load(FROZEN / "checkpoints" / "latest.ckpt", weights_only=True)
    odd = []
    weights, parts = ("state_dict", "current_model_state"), ("run", "optimizer_states", "loops")
    places = [path for path in paths(whole) if (path[0] if path[0] in (*weights, *parts) else "the rest") == part]
    assert places
    for path in places:
        for change in (deleted(*path), replaced("abc", *path)):
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            shutil.copytree(FROZEN, tmp_path / "run")
            state = copy.deepcopy(whole)
            change(state)
            torch.save(state, latest)
            try:
                run = cli("train", "resume=run", "trainer.max_steps=51", tiny=False)
            except Exception as error:  # a traceback, for a user
                odd.append((path, repr(error)))
                continue
            if run.status not in (0, 2, 3, 4) or "Traceback" in run.err:
                odd.append((path, run.status, run.err[-200:]))
    assert not odd, "\n".join(map(str, odd))
