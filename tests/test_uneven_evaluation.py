"""Two processes evaluate uneven shares: of 359 images the first has two batches, the other one, and neither hangs."""

import csv
import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import evaluated, image_folder
from two_processes import status_of, two_processes, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WATCHED = """
import torch
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
log = open(f"collectives.{rank}", "w", buffering=1)
def logged(module, name):
    operation = getattr(module, name)
    def call(*args, **options):
        log.write(name + chr(10))
        return operation(*args, **options)
    setattr(module, name, call)
for name in ("all_reduce", "broadcast", "all_gather", "barrier", "broadcast_object_list", "all_gather_object"):
    logged(torch.distributed, name)
    setattr(distributed_c10d, name, getattr(torch.distributed, name))
forward = DistributedDataParallel.forward
def watched(self, *inputs, **options):
    if not torch.is_grad_enabled():
        log.write("an evaluation step through DDP" + chr(10))
    return forward(self, *inputs, **options)
DistributedDataParallel.forward = watched
"""
SLOW = """
import time
from vitlab.tasks import Task
step = Task.test_step
def slow(self, batch, batch_idx):
    if rank == "0":
        open("in_test", "w").close()
        time.sleep(5)
    return step(self, batch, batch_idx)
Task.test_step = slow
"""
UNEVEN = ["data=digits", "data.split.val_fraction=0.2", "global_batch_size=358", "trainer.max_epochs=-1"]
RESNET = ["model=resnet20", "model.depth=8", "model.width=4", "callbacks=[default,ema]", "callbacks.ema.decay=0.5"]
BUFFERS = {
    "linear_probe": ["task=linear_probe", "task.lr_grid=[0.1,1.0]", "optimizer=sgd"],
    "fixed_sines_and_class_weights": ["model.position=sincos_2d", "task.class_weights=balanced"],
    "rotary": ["model.position=rotary", "model.stem_channels=[4,4]", "model.patch_size=null"],
    "masked_autoencoder": [
        *["task=masked_autoencoding", "model=mae_xs4", "model.encoder.embed_dim=32", "model.encoder.depth=1"],
        *["model.encoder.num_heads=2", "model.decoder_dim=24", "model.decoder_depth=1", "model.decoder_heads=2"],
    ],
}


@pytest.fixture
def busy():
    """Another process that wants all it can get of each core."""
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for load in loads:
        load.kill()
        load.wait()


def run(folder, *options, patch=WATCHED):
    with two_processes(folder, *options, patch=patch) as first:
        assert status_of(first, folder, seconds=500) == 0, (folder / "err").read_text()


def check_evaluated_as_one(cli, folder):
    """Both ranks have called the same operations in the same order, none of them by a batch of an evaluation; and one
    process that opens the best model gives the same results for the same images."""
    first, other = ((folder / f"collectives.{rank}").read_text().splitlines() for rank in "01")
    assert first == other
    assert {"barrier", "broadcast", "all_gather"} <= set(first)
    assert "an evaluation step through DDP" not in first
    tested = json.loads((folder / "run" / "result.json").read_text())["test"]
    predictions = folder / "run" / "test_predictions.csv"
    if predictions.is_file():
        with open(predictions, newline="") as f:
            assert [int(row["index"]) for row in csv.DictReader(f)] == list(range(359))
    scored = cli("evaluate", "run=run")
    assert scored.status == 0, scored.err
    again = evaluated(folder / "run")
    assert {name: again[name] for name in tested} == pytest.approx(tested, abs=1e-5)


@pytest.mark.parametrize("buffers", BUFFERS)
def test_models_with_buffers(cli, tmp_path, buffers):
    run(tmp_path, *UNEVEN, *BUFFERS[buffers], "trainer.max_steps=4")
    check_evaluated_as_one(cli, tmp_path)


def test_batch_norm_and_averages_on_a_loaded_machine_in_a_fit_alone_and_after_a_resume(cli, tmp_path, busy):
    """Steps 4 and 8 lie within an epoch of three: the fit ends, and the last validation is one of its own."""
    run(tmp_path, *UNEVEN, *RESNET, "trainer.max_steps=4")
    check_evaluated_as_one(cli, tmp_path)
    run(tmp_path, "resume=run", "trainer.max_steps=8")
    check_evaluated_as_one(cli, tmp_path)
    with open(tmp_path / "run" / "metrics.csv", newline="") as f:
        assert [int(row["step"]) for row in csv.DictReader(f) if row["val/loss"]] == [3, 4, 6, 8]


def test_a_signal_between_the_batches_of_a_test_ends_all_processes(tmp_path):
    """The first process has its second batch before it, the other one waits for it to come to the metrics."""
    with two_processes(tmp_path, *UNEVEN, "trainer.max_steps=1", patch=SLOW) as first:
        until((tmp_path / "in_test").is_file, 400)
        first.send_signal(signal.SIGTERM)
        assert status_of(first, tmp_path, seconds=60) == 128 + signal.SIGTERM


def test_a_rank_that_can_read_none_of_its_images(cli, tmp_path):
    """Every second image of val and test is no image: the other rank has them."""
    rows = ["path,label,split"]
    root = image_folder(tmp_path / "images", count=12, splits=("train", "val", "test"), size=8)
    for split in ("train", "val", "test"):
        for number, path in enumerate(sorted((root / split).rglob("*.png"))):
            if split != "train" and number % 2:
                path.write_bytes(b"nothing")
            rows.append(f"{path},{path.parent.name}{';both' if number % 3 else ''},{split}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    data = ["task=multilabel", "data=listing", "data.source.file=list.csv", "data.source.split_column=split"]
    data += [
        'data.source.label_separator=";"',
        "data.num_classes=3",
        "data.image_size=8",
        "data.loading.on_bad_image=skip",
    ]
    data += ["crop=whole", "data.cache.root=cache", "global_batch_size=4", "trainer.max_epochs=1"]
    run(tmp_path, *data)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["skipped"] == {"val": 12, "test": 12}
    tested = result["test"]
    assert cli("evaluate", "run=run").status == 0
    again = evaluated(tmp_path / "run")
    assert {name: again[name] for name in tested} == pytest.approx(tested, abs=1e-5)
