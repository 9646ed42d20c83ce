"""Any order of steps, saves, kills, signals, evaluations and numbers of workers is the run that nobody disturbed."""

import os
import shutil
import signal
import sys

import pytest
from conftest import BARE, FEW, SRC, TINY, chosen
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from test_resume import Killed, same_tensors, states

from vitlab.checkpoints import writer
from vitlab.checkpoints.chain import read_chain
from vitlab.checkpoints.run_folder import LATEST
from vitlab.tasks import Task

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(3000)]

RUN = [*TINY, *BARE, *FEW, "trainer.max_epochs=3", "data.device_batch_size=32", "trainer.log_every_n_steps=1"]
RUN += ["mixing=mixup_cutmix", "model.drop_rate=0.1", "callbacks=[default,ema]", "callbacks.ema.decay=0.8"]
MICRO_BATCHES = 24  # of 12 steps
COUNTS = st.integers(0, MICRO_BATCHES)
WORKERS = st.sampled_from([0, 1, 2])


def command(entry, *words):
    """The status of a command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SRC / f"{entry}.py"), *words])
        try:
            __import__(entry).main()
        except SystemExit as end:
            return end.code
    return 0


def train(folder, workers, every, *, after=None, end=None, background=False):
    """Start or resume the run; `end` is called before the micro-batch that comes `after` so many of this start."""
    step, calls = Task.training_step, [0]

    def counted(self, batch, batch_idx):
        if calls[0] == after:
            end()
        calls[0] += 1
        return step(self, batch, batch_idx)

    saved = any((folder / "checkpoints" / f"{name}.ckpt").is_file() for name in LATEST)
    words = [f"resume={folder}"] if saved else [*chosen(*RUN), f"hydra.run.dir={folder}"]
    words += [f"data.loading.num_workers={workers}", f"callbacks.latest_state.every_n_steps={every}"]
    if not saved:
        shutil.rmtree(folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "training_step", counted)
        patch.setattr(writer, "LARGE", 0 if background else writer.LARGE)
        return command("train", *chosen(*words))


def kill():
    raise Killed


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train(folder, 0, 1000) == 0
    return folder


def test_any_order_is_the_undisturbed_run(whole, tmp_path):
    numbers = iter(range(10**6))

    class Run(RuleBasedStateMachine):
        @initialize()
        def begin(self):
            self.folder, self.done = tmp_path / str(next(numbers)), False

        @precondition(lambda self: not self.done)
        @rule(workers=WORKERS, every=st.integers(1, 5), after=COUNTS, background=st.booleans())
        def is_killed(self, workers, every, after, background):
            try:
                self.done = train(self.folder, workers, every, after=after, end=kill, background=background) == 0
            except Killed:
                assert not (self.folder / "result.json").exists()

        @precondition(lambda self: not self.done)
        @rule(
            workers=WORKERS,
            every=st.integers(1, 5),
            after=COUNTS,
            number=st.sampled_from([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]),
        )
        def is_stopped(self, workers, every, after, number):
            end = lambda: os.kill(os.getpid(), number)  # noqa: E731
            status = train(self.folder, workers, every, after=after, end=end)
            assert status in (0, 128 + number)
            self.done = status == 0

        @precondition(lambda self: (self.folder / "checkpoints" / "best.ckpt").is_file())
        @rule(workers=WORKERS)
        def is_evaluated(self, workers):
            words = [f"run={self.folder}", "split=val", f"data.loading.num_workers={workers}"]
            assert command("evaluate", *words[:2]) == 0

        @precondition(lambda self: not self.done)
        @rule(workers=WORKERS, every=st.integers(1, 5))
        def goes_on_to_its_end(self, workers, every):
            assert train(self.folder, workers, every) == 0
            self.done = True

        def teardown(self):
            if not self.done:
                assert train(self.folder, 0, 1000) == 0
            assert same_tensors(states(self.folder), states(whole))
            read_chain(self.folder / "chain.jsonl")
            shutil.rmtree(self.folder)

    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Run,
        settings=settings(
            max_examples=25, stateful_step_count=5, deadline=None, suppress_health_check=checks, derandomize=True
        ),
    )
