"""trainer=fsdp and trainer=hsdp with gloo on a CPU are one process: losses, evaluation, checkpoints, regimes."""

import csv
import json
import shutil

import pytest
import torch
from conftest import BARE, TINY, evaluated
from many_runs import train_all
from test_ddp import REGIMES
from test_signals import same_states

from vitlab.checkpoints import file

COMPARED = ("train/loss", "train/grad_norm", "val/")
SHORT = [*TINY, *BARE, "trainer.log_every_n_steps=1", "global_batch_size=64", "trainer.max_steps=4"]
SHORT += ["+trainer.val_check_interval=2", "data.split.labels_per_class=26"]
FSDP = ["trainer=fsdp", "trainer.devices=2", "trainer.accelerator=cpu", "trainer.precision=32-true"]
OPTIMIZERS = ("adamw", "sgd", "lamb", "lars", "lion")


def rows(folder):
    with open(folder / "metrics.csv", newline="") as f:
        return list(csv.DictReader(f))


def assert_same(one, other, tolerance, compared=COMPARED):
    """The rows of two runs, and their tests."""
    told = 0
    for a, b in zip(rows(one), rows(other), strict=True):
        for name in [name for name in a if name.startswith(compared) and a[name]]:
            told += 1
            assert float(b[name]) == pytest.approx(float(a[name]), abs=tolerance, rel=tolerance), (name, a["step"])
    assert told
    results = [json.loads((folder / "result.json").read_text())["test"] for folder in (one, other)]
    assert results[1] == pytest.approx(results[0], abs=tolerance)


def without_trainer(words):
    return [word for word in words if word != "trainer=cpu"]


def all_alike(cli, folder, runs, tolerance, compared=COMPARED, processes=(2,)):
    """Each of the runs by one process, and by some numbers of processes with sharded weights."""
    for count in processes:
        own = [*FSDP, f"trainer.devices={count}"]
        statuses = train_all(
            folder,
            {f"{count}_{name}": [*without_trainer(words), *own] for name, words in runs.items()},
            count,
        )
        assert statuses == {f"{count}_{name}": 0 for name in runs}, (folder / "log").read_text()[-4000:]
    for name, words in runs.items():
        eager = [word for word in words if word != "compile=true"]
        one = cli("train", *eager, folder=f"one_{name}", tiny=False)
        assert one.status == 0, one.err
        for count in processes:
            assert_same(one.folder, folder / f"{count}_{name}", tolerance, compared)


@pytest.mark.slow
def test_every_optimizer_with_sharded_weights_is_itself(cli, tmp_path):
    all_alike(cli, tmp_path, {name: [*SHORT, f"optimizer={name}"] for name in OPTIMIZERS}, 1e-5)


OF_ANOTHER_SIZE = (
    "multilabel",
    "captioning",
    "answering",
    "sequence",
    "contrastive",
)  # data that have no labels_per_class
OPTIONS = {
    "activation_checkpointing": ["activation_checkpointing=true"],
    "compile": ["compile=true"],  # block by block
    "swa": ["callbacks=[default,swa]", "callbacks.swa.start_ratio=0.25", "callbacks.swa.every_n_steps=1"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "tolerance", "compared", "processes"),
    [
        (("multilabel", "distillation", "two_tokens"), 1e-5, COMPARED, (2,)),
        (("self_distillation", "probing_while_training"), 1e-5, COMPARED, (2,)),
        (("captioning", "answering", "sequence", *OPTIONS), 1e-5, COMPARED, (2,)),
        (("unfreezing",), 2e-4, COMPARED, (2,)),  # Muon orthogonalises in bfloat16, where the order of a sum shows
        (("masked_autoencoding",), 1e-5, "val/", (2, 4)),  # in training each rank has its own masks
        pytest.param(
            ("multilabel", "distillation", "self_distillation", "captioning", "contrastive", "sequence", *OPTIONS),
            *(1e-5, COMPARED, (4,)),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["teachers", "images", "texts_and_options", "unfreezing", "masks", "all_by_four"],
)
def test_every_regime_with_sharded_weights_is_itself(cli, digits_run, tmp_path, names, tolerance, compared, processes):
    runs = {}
    for name in names:
        words = [word for word in SHORT if name not in OF_ANOTHER_SIZE or "labels_per_class" not in word]
        words = [word for word in words if name != "sequence" or "loading" not in word]  # texts have no workers
        runs[name] = words + [word.replace("RUN", str(digits_run)) for word in (REGIMES | OPTIONS)[name]]
    all_alike(cli, tmp_path, runs, tolerance, compared, processes)


@pytest.mark.slow
def test_towers_with_sharded_weights_are_themselves_and_go_on_with_one_process(cli, tmp_path):
    """The pairs of a batch are compared across processes, classes are told by texts that each of them reads."""
    own = [*[word for word in SHORT if "labels_per_class" not in word], *REGIMES["contrastive"]]
    runs = {"softmax": own, "sigmoid": [*own, "task.contrast=sigmoid", "model.bias=-10"]}
    all_alike(cli, tmp_path, runs, 1e-5)
    for name in runs:
        test = json.loads((tmp_path / f"2_{name}" / "result.json").read_text())["test"]
        assert cli("evaluate", f"run=2_{name}", f"output=scored_{name}").status == 0
        found = evaluated(tmp_path / f"scored_{name}")
        assert {key: found[key] for key in test} == pytest.approx(test, abs=1e-5)
        for folder in (f"one_{name}", f"2_{name}"):
            again = cli("train", f"resume={folder}", "trainer.max_steps=6", "trainer=cpu", tiny=False)
            assert again.status == 0, again.err
        assert_same(tmp_path / f"one_{name}", tmp_path / f"2_{name}", 1e-5)


CURVE = [*TINY, *BARE, "trainer.log_every_n_steps=1", "global_batch_size=128", "data.device_batch_size=32"]
CURVE += ["trainer.max_steps=20", "trainer.max_epochs=-1", "callbacks=[default,ema]", "callbacks.ema.decay=0.9"]
CURVE += ["trainer.gradient_clip_val=0.5", "optimizer.lr=1e-3"]
# a bias of keys has no gradient, since a softmax is the same after a shift, and Adam would step by rounding
CURVE += ["model.qkv_bias=false"]
DDP = [word.replace("fsdp", "ddp") for word in FSDP]
MORE = "trainer.max_steps=24"


@pytest.mark.slow
def test_one_process_two_and_sharded_weights_are_one_run_and_go_on_with_each_others_states(cli, tmp_path):
    """Accumulation, clipping, an average, evaluation on uneven splits; then each state by another strategy."""
    one = cli("train", *CURVE, folder="one", tiny=False)
    assert one.status == 0, one.err
    curve = without_trainer(CURVE)
    runs = {"ddp": [*curve, *DDP], "fsdp": [*curve, *FSDP], "bf16": [*curve, *FSDP, "trainer.precision=bf16-mixed"]}
    statuses = train_all(tmp_path, runs)
    assert statuses == dict.fromkeys(runs, 0), (tmp_path / "log").read_text()[-4000:]
    for name in ("ddp", "fsdp"):
        assert_same(tmp_path / "one", tmp_path / name, 1e-5)
        states = [file.read(tmp_path / run / "checkpoints" / "latest.ckpt") for run in ("one", name)]
        assert_alike(*states)
    for name in ("one", "ddp", "fsdp"):
        shutil.copytree(tmp_path / name, tmp_path / f"{name}_then_fsdp")
    resumed = {name: [f"resume={name}", MORE, *FSDP] for name in ("one_then_fsdp", "ddp_then_fsdp", "fsdp_then_fsdp")}
    assert train_all(tmp_path, resumed) == dict.fromkeys(resumed, 0), (tmp_path / "log").read_text()[-4000:]
    for name in ("one", "fsdp"):
        again = cli("train", f"resume={name}", MORE, "trainer=cpu", tiny=False)
        assert again.status == 0, again.err
    for name in ("fsdp", *resumed):
        assert_same(tmp_path / "one", tmp_path / name, 1e-5)


def assert_alike(one, other):
    """Two states to go on from."""
    for key in ("state_dict", "current_model_state"):
        assert one[key].keys() == other[key].keys()
        for name, value in one[key].items():
            assert type(other[key][name]) is torch.Tensor
            torch.testing.assert_close(other[key][name], value, atol=1e-5, rtol=0)
    kept, other_kept = (state["optimizer_states"][0]["state"] for state in (one, other))
    assert kept.keys() == other_kept.keys()
    for number, values in kept.items():
        for name, value in values.items():
            torch.testing.assert_close(other_kept[number][name], value, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_four_processes_are_one_process_with_every_strategy(cli, tmp_path):
    own = {name: [f"trainer={name}", *FSDP[1:], "trainer.devices=4"] for name in ("ddp", "fsdp", "hsdp")}
    own["hsdp"].append("trainer.strategy.copies=2")
    runs = {name: [*without_trainer(CURVE), *words] for name, words in own.items()}
    assert train_all(tmp_path, runs, processes=4) == dict.fromkeys(runs, 0), (tmp_path / "log").read_text()[-4000:]
    one = cli("train", *CURVE, folder="one", tiny=False)
    assert one.status == 0, one.err
    for name in runs:
        assert_same(tmp_path / "one", tmp_path / name, 1e-5)


@pytest.mark.slow
def test_a_state_is_gone_on_with_bit_for_bit_by_as_many_processes(tmp_path):
    own = {"ddp": DDP, "fsdp": FSDP}
    kept = ["callbacks.latest_state.every_n_steps=10", "callbacks.latest_state.keep_every_n_steps=10"]
    runs = {name: [*without_trainer(CURVE), *kept, *words] for name, words in own.items()}
    assert train_all(tmp_path, runs) == dict.fromkeys(runs, 0), (tmp_path / "log").read_text()[-4000:]
    again = {}
    for name in runs:
        shutil.copytree(tmp_path / name, tmp_path / f"{name}_again")
        for path in (tmp_path / f"{name}_again" / "checkpoints").glob("[lp]*.ckpt"):
            path.unlink()
        again[f"{name}_again"] = [f"resume={name}_again/checkpoints/step_10.ckpt"]
    assert train_all(tmp_path, again) == dict.fromkeys(again, 0), (tmp_path / "log").read_text()[-4000:]
    for name in runs:
        assert same_states(tmp_path / name, tmp_path / f"{name}_again")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task=linear_probe", "optimizer=sgd"], "LinearProbe, which trains parts outside its model"),
        (["model=resnet20"], "BatchNorm"),
        (["trainer.strategy.copies=0"], "copies 0 is not a whole number of at least 1"),
        (["trainer.strategy.copies=3", "trainer.devices=2"], "copies 3 does not divide the 2 devices"),
        (["trainer.strategy.timeout_minutes=0"], "timeout_minutes 0 is not a number above 0"),
        (["trainer.precision=16-mixed"], "16-mixed"),
    ],
)
def test_refusals(cli, words, said):
    options = ["model=vit_mu4", *BARE, *FSDP, "trainer.devices=1", "logger=none"]
    run = cli("train", *options, *words, tiny=False)
    assert run.status == 2
    assert said in run.err
    assert "Traceback" not in run.err
