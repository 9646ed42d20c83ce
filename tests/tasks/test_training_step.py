"""One training step, traced: what is called in which order, and how many files of ours it takes."""

import inspect
import re
import sys
from pathlib import Path

import pytest
from conftest import BARE, TINY, image_folder
from torch.optim.optimizer import register_optimizer_step_post_hook

from vitlab.tasks import Task

ROOT = Path(__file__).parents[2] / "src" / "vitlab"
STEPS = 5  # optimizer steps of a traced run
MATHEMATICS = {"layers", "models", "losses", "optim"}  # functions of tensors and steps: called, not walked through


@pytest.fixture
def traced_step(cli):
    """traced_step(*words): the calls of one step of a run, as (function, file, whether a library called it)."""

    def trace(*words):
        calls, steps = [], []

        def note(frame, event, argument):
            code = frame.f_code
            if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and is_ours(code):
                name = code.co_qualname.split(".<locals>")[0]
                calls.append((name, Path(code.co_filename), is_called_by_library(frame)))

        def stepped(*arguments):
            steps.append(len(calls))
            if len(steps) == STEPS - 2:
                sys.setprofile(note)
            if len(steps) == STEPS:
                raise KeyboardInterrupt

        hook = register_optimizer_step_post_hook(stepped)
        try:
            assert cli("train", *words, tiny=False).status == 130
        finally:
            sys.setprofile(None)
            hook.remove()
        names = [name for name, _, _ in calls]
        begins = names.index("Loader.__iter__")
        steps_end = names.index("StepLog.on_train_batch_end", begins)
        return calls[begins : names.index("Loader.__iter__", steps_end)]

    return trace


def is_ours(code):
    return code.co_filename.startswith(str(ROOT))


def is_called_by_library(frame):
    """Whether no function of ours waits for this call, but for the program, which waits for the whole training."""
    while (frame := frame.f_back) is not None and not is_ours(frame.f_code):
        pass
    return frame is None or Path(frame.f_code.co_filename).parent == ROOT / "programs"


def named_in_order(*, ema):
    """List the functions that the docstring of Task names, those that only EMA adds if it is chosen."""
    names = re.findall(r"^ *\d+\. `([\w.]+)`(, with)?", inspect.getdoc(Task), re.MULTILINE)
    numbers = [int(number) for number in re.findall(r"^ *(\d+)\. `", inspect.getdoc(Task), re.MULTILINE)]
    assert numbers == list(range(1, len(names) + 1))
    return [name for name, chosen in names if ema or not chosen]


def check_order(calls, *, ema):
    expected = named_in_order(ema=ema)
    first_calls = list(dict.fromkeys(name for name, _, _ in calls))
    assert [name for name in first_calls if name in expected] == expected
    hooks = {name for name, _, called_by_library in calls if called_by_library}
    assert {"Task.training_step", "StepLog.on_train_batch_end"} < hooks <= set(expected)


def count_files(calls):
    """Count the files outside of the mathematics: those of data, and the others."""
    files = {file.relative_to(ROOT) for _, file, _ in calls}
    walked = {file for file in files if file.parts[0] not in MATHEMATICS}
    data = {file for file in walked if file.parts[0] == "data"}
    return len(data), len(walked - data), sorted(map(str, walked))


def test_the_docstring_names_what_a_step_of_the_default_run_calls_in_order(traced_step):
    calls = traced_step()
    check_order(calls, ema=False)
    data, others, files = count_files(calls)
    assert others <= 6, files
    assert data <= 16, files  # without workers, the samples are made in the same process


@pytest.mark.slow
def test_a_step_with_an_average_of_the_weights_ends_with_it(traced_step):
    check_order(traced_step("callbacks=[default,ema]"), ema=True)


@pytest.mark.slow
def test_a_step_with_workers_walks_through_few_files(traced_step, tmp_path):
    image_folder(tmp_path / "images", count=60, splits=("train", "val"), size=32)
    words = [word for word in TINY if "num_workers" not in word]
    words += [*BARE, "data=folder", f"data.source.root={tmp_path / 'images'}", "data.loading.num_workers=1"]
    calls = traced_step(*words, "global_batch_size=8", "data.image_size=32")
    check_order(calls, ema=False)
    data, others, files = count_files(calls)
    assert others <= 6, files
    assert data + others <= 15, files
