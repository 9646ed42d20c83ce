"""A run that is killed in mid-epoch goes on with the very samples and crops, wherever its images come from."""

import os
import signal
import subprocess
import sys
import time
import zlib
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from conftest import BARE, SRC, TINY, chosen, mostly_slow
from PIL import Image

OPTIONS = [
    *BARE,
    "data.num_classes=2",
    "data.image_size=16",
    "data.split.val_fraction=0.2",
    "data.split.test_fraction=0.1",
    "global_batch_size=8",
    "trainer.max_epochs=2",
    "trainer.log_every_n_steps=4",
    "augmentation=color_jitter",
    "callbacks.latest_state.every_n_steps=3",
]  # 56 images in train: 7 steps an epoch
SOURCES = {
    "folder": ["data=folder", "data.source.root=images", "data.source.index_root=index"],
    "encoded": ["data=folder", "data.source.root=images", "data.cache.kind=encoded", "data.cache.root=cache"],
    "decoded": ["data=folder", "data.source.root=images", "data.cache.kind=decoded", "data.cache.root=cache"],
    "device": ["data=folder", "data.source.root=images", "data.cache.kind=device", "data.cache.root=cache"],
    "shards": ["data=shards", "data.source.root=shards", "data.order.shuffle_window=2"],
}
RECORDED = """
import sys, zlib
sys.path[:0] = [{src!r}, {tests!r}]
import test_data_resume
import train
test_data_resume.record(open({log!r}, "a", buffering=1), pause={pause})
train.main()
"""


def options_of(source):
    plain = [o for o in OPTIONS if not (source == "device" and o.startswith("augmentation"))]
    return [*SOURCES[source], *plain]


def record(log, pause=0.0, kill_at=None):
    """Write step, places and a checksum of the pixels of every training batch; returns how to undo it."""
    from vitlab.tasks import Task

    step, count = Task.training_step, [0]

    def recorded(self, batch, batch_idx):
        count[0] += 1
        if kill_at is not None and count[0] > kill_at:
            raise Killed
        places = " ".join(map(str, batch.index.tolist()))
        print(self.global_step, places, zlib.crc32(batch.view.inputs.numpy().tobytes()), sep=",", file=log)
        time.sleep(pause)
        return step(self, batch, batch_idx)

    Task.training_step = recorded
    return lambda: setattr(Task, "training_step", step)


class Killed(BaseException):
    """Stands for kill -9: nothing in the run may handle it."""


@pytest.fixture
def images(tmp_path):
    """80 JPEGs of different sizes in two classes."""
    random = np.random.RandomState(0)
    for name in ("a", "b"):
        folder = tmp_path / "images" / "train" / name
        folder.mkdir(parents=True)
        for i in range(40):
            small = random.randint(0, 256, (6, 8, 3), dtype=np.uint8)
            size = (int(random.randint(20, 50)), int(random.randint(20, 50)))
            Image.fromarray(small).resize(size).save(folder / f"{i}.jpg")
    return tmp_path


def packed(cli):
    run = cli(
        "pack", "data=folder", "data.source.root=images", "data.num_classes=2", "output=shards", "shard_size=0.02"
    )
    assert run.status == 0, run.err
    assert len(list(Path("shards").glob("*.tar"))) > 3


def lines(path):
    return {line.split(",")[0]: line for line in Path(path).read_text().splitlines()}


def trained(cli, log, *overrides, kill_at=None, folder=None):
    with open(log, "w") as file:
        undo = record(file, kill_at=kill_at)
        try:
            run = cli("train", *overrides, folder=folder)
            assert run.status == 0, run.err
        finally:
            undo()
    return lines(log)


GUARD = [("shards", 3)]
CASES = [
    pytest.param(source, workers, marks=[pytest.mark.slow, *([pytest.mark.ci] if (source, workers) in GUARD else [])])
    for source in SOURCES
    for workers in (0, 2, 3)
]


@pytest.mark.parametrize(("source", "workers"), CASES)
def test_killed_in_mid_epoch_and_resumed_the_batches_are_the_same(cli, images, source, workers):
    if source == "shards":
        packed(cli)
    options = [*options_of(source), f"data.loading.num_workers={workers}"]
    whole = trained(cli, "whole.txt", *options, folder="whole")
    assert len(whole) == 14
    with pytest.raises(Killed):
        trained(cli, "killed.txt", *options, kill_at=5, folder="killed")
    other = {0: 2, 2: 3, 3: 0}[workers]  # the number of workers may change
    resumed = trained(cli, "resumed.txt", "resume=killed", f"data.loading.num_workers={other}")
    assert next(iter(resumed)) == "3"  # the step of the last state
    assert resumed == {step: line for step, line in whole.items() if int(step) >= 3}


@pytest.mark.slow
@pytest.mark.parametrize("few", [[], ["data.split.labels_per_class=10"]], ids=["all", "few"])
def test_balanced_classes_and_few_labels_go_on_with_the_same_samples(cli, images, few):
    for i in range(20, 40):
        Path(f"images/train/b/{i}.jpg").unlink()
    options = [
        *options_of("folder"),
        "data.order.class_balance=1",
        *few,
        "trainer.max_epochs=4",
        "data.loading.num_workers=0",
    ]
    whole = trained(cli, "whole.txt", *options, folder="whole")
    assert len(whole) == (8 if few else 20)  # of 20 samples, or 42
    with pytest.raises(Killed):
        trained(cli, "killed.txt", *options, kill_at=5, folder="killed")
    resumed = trained(cli, "resumed.txt", "resume=killed", "data.loading.num_workers=2")
    first = int(next(iter(resumed)))
    assert 3 <= first <= 5  # after the last state
    assert resumed == {step: line for step, line in whole.items() if int(step) >= first}
    again = cli("train", "resume=killed", "data.order.class_balance=0.5")
    assert again.status == 2
    assert "data.order.class_balance is 1" in again.err + again.out


def test_every_epoch_has_every_sample_once_and_other_crops(cli, images):
    whole = trained(cli, "log.txt", *options_of("folder"), folder="run")
    places = [line.split(",")[1].split() for line in whole.values()]
    first, second = (list(chain(*epoch)) for epoch in (places[:7], places[7:]))
    assert sorted(map(int, first)) == sorted(map(int, second)) == list(range(56))
    assert first != second


@pytest.mark.parametrize("source", mostly_slow(["encoded", "decoded"]))
def test_a_cache_changes_no_sample_and_no_crop(cli, images, source):
    """A cache larger than the images holds their own pixels; then the batches are the same, byte for byte."""
    plain = trained(cli, "plain.txt", *options_of("folder"), folder="plain")
    cached = trained(cli, "cached.txt", *options_of(source), "data.cache.size=64", folder="cached")
    strip = {step: line.rpartition(",")[0] for step, line in plain.items()}
    assert {step: line.rpartition(",")[0] for step, line in cached.items()} == strip
    if source == "encoded":
        assert cached == plain


@pytest.mark.slow
@pytest.mark.parametrize(("source", "workers"), [("folder", 2), ("encoded", 3), ("shards", 3), ("decoded", 0)])
def test_kill_minus_nine_of_the_real_process(cli, images, source, workers):
    if source == "shards":
        packed(cli)
    options = [*options_of(source), f"data.loading.num_workers={workers}"]
    whole = trained(cli, "whole.txt", *options, folder="whole")
    script = images / "recorded.py"
    names = {"src": str(SRC), "tests": str(Path(__file__).parent), "log": str(images / "killed.txt")}
    script.write_text(RECORDED.format(**names, pause=0.3))
    command = [sys.executable, str(script), *chosen(*TINY, *options, "hydra.run.dir=killed")]
    process = subprocess.Popen(command, cwd=images, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if Path("killed.txt").exists() and len(lines("killed.txt")) >= 5:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    resumed = trained(cli, "resumed.txt", "resume=killed", f"data.loading.num_workers={workers}")
    first = int(next(iter(resumed)))
    assert 0 < first < 7
    assert resumed == {step: line for step, line in whole.items() if int(step) >= first}


@pytest.mark.slow
@pytest.mark.parametrize("source", ["folder", "shards", "decoded"])
def test_two_processes_are_stopped_and_one_goes_on(cli, images, source):
    if source == "shards":
        packed(cli)
    options = [*options_of(source), "data.loading.num_workers=2"]
    whole = trained(cli, "whole.txt", *options, folder="whole")
    script = images / "recorded.py"
    names = {"src": str(SRC), "tests": str(Path(__file__).parent)}
    script.write_text(RECORDED.format(**names, log=str(images / "ranks.txt"), pause=0))
    ranks = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true"]
    limits = ["trainer.max_steps=4", "callbacks.latest_state.every_n_steps=2", "trainer.num_sanity_val_steps=0"]
    command = [sys.executable, str(script), *chosen(*TINY, *options, *ranks, *limits, "hydra.run.dir=two")]
    subprocess.run(command, cwd=images, check=True, capture_output=True, timeout=240, env=os.environ)
    seen = {}
    for line in Path("ranks.txt").read_text().splitlines():
        step, places, _ = line.split(",")
        seen.setdefault(step, []).extend(places.split())
    expected = {step: sorted(line.split(",")[1].split()) for step, line in whole.items()}
    assert {step: sorted(places) for step, places in seen.items()} == {s: expected[s] for s in "0123"}
    one = ["trainer.accelerator=cpu", "trainer.devices=1", "trainer.strategy=auto", "trainer.max_steps=-1"]
    resumed = trained(cli, "resumed.txt", "resume=two", *one)
    assert resumed == {step: line for step, line in whole.items() if int(step) >= 4}
