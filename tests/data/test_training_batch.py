"""The page on which the path of a training batch is written, `vitlab/data/__init__.py`, is the path that it takes."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from stand_in import datamodule_of, stand_in

import vitlab.data
from vitlab.data import Folder, RandomResizedCrop, WholeImage

ROOM = Path(vitlab.data.__file__).parent
STEPS = re.findall(r"^\d+\. `([a-z_/]+\.py)`: `(\w+)`", vitlab.data.__doc__, re.MULTILINE)
MOST = 9  # with the six of a step without data: 15


@pytest.fixture
def module(tmp_path):
    """A datamodule of image files, without workers."""
    for k, pixels in enumerate(np.random.RandomState(0).randint(0, 256, (24, 40, 50, 3), np.uint8)):
        (folder := tmp_path / f"class{k % 2}").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{k}.png")
    crop = {"scale": (0.1, 1.0), "ratio": (0.75, 1.25), "method": "torchvision", "flip_rate": 0.5}
    module = datamodule_of(
        source=Folder(root=str(tmp_path), splits=None, index_root=None, allow_outside=False),
        image_size=16,
        image_mode="RGB",
        in_chans=3,
        num_classes=2,
        mean=[0.5] * 3,
        std=[0.25] * 3,
        train_crop=RandomResizedCrop(image_size=16, interpolation="bilinear", **crop),
        eval_crop=WholeImage(image_size=16, interpolation="bilinear"),
        train_transform=None,
        cache="none",
        cache_root="no such folder",
        cache_size=8,
        val_fraction=0.2,
        test_fraction=0.2,
        labels_per_class=None,
        class_balance=0.0,
        patch_size=4,
        global_batch_size=4,
        device_batch_size=None,
        repeats=1,
        shuffle_window=None,
        num_workers=0,
        prefetch_batches=None,
        stall_timeout=0,
        on_bad_image="error",
        seed=0,
    )
    module.trainer = stand_in()
    module.setup()
    return module


def test_the_page_names_few_files_and_functions_that_are_there():
    assert 5 < len(STEPS) <= MOST
    assert len({file for file, _ in STEPS}) == len(STEPS)
    for file, function in STEPS:
        assert re.search(rf"^ *def {function}\(", (ROOM / file).read_text(encoding="utf-8"), re.MULTILINE), file


def test_a_batch_takes_the_steps_in_the_order_of_the_page(module):
    called = []

    def note(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        step = (path.relative_to(ROOM).as_posix(), frame.f_code.co_name) if path.is_relative_to(ROOM) else None
        if event == "call" and step in STEPS and step not in called:
            called.append(step)

    sys.setprofile(note)
    try:
        raw = next(iter(module.train_dataloader()))
        batch = module.on_after_batch_transfer(module.on_before_batch_transfer(raw, 0), 0)
    finally:
        sys.setprofile(None)
    assert called == STEPS
    assert batch.view.inputs.shape == (4, 16, 48)
