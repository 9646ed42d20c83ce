"""End a run between two steps, with its state saved, on Ctrl-C, SIGTERM and the like."""

import os
import signal
import threading
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from vitlab.callbacks.latest_state import LatestState
from vitlab.distributed.signals import NOTICED, STOPPING
from vitlab.ranges import Count


class Interrupted(SystemExit):
    """The run was asked to stop and has saved its state; the exit status is 128 + the signal's number."""


class Interruption(Callback):
    """On SIGINT, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2: finish the optimizer step, save the latest state, leave with 128
    and the signal's number. One that the process was started to ignore (nohup) stays ignored.

    A second signal ends the process at once. With several processes the ranks agree at every `every_n_steps`-th step.
    """

    def __init__(self, *, every_n_steps: Count):
        self.every_n_steps = every_n_steps
        self.signal: int | None = None
        self.process = os.getpid()
        self.handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.world_size > 1:  # Lightning asks every rank at every batch, and waits for the device each time
            trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None
        if threading.current_thread() is not threading.main_thread():
            return  # Python takes handlers in the main thread only
        for number in STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self.handlers[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        NOTICED.set()
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == self.process:  # the workers of a loader have the handler too
            print(f"\n{signal.Signals(number).name}: stopping after this step; send again to stop at once", flush=True)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._stop_if_asked(trainer, at_epoch_end=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop_if_asked(trainer, at_epoch_end=True)

    def _stop_if_asked(self, trainer: pl.Trainer, *, at_epoch_end: bool) -> None:
        asked = self.signal is not None
        if trainer.world_size > 1:
            if trainer.global_step % self.every_n_steps and not at_epoch_end:
                return
            asked = trainer.strategy.reduce_boolean_decision(asked, all=False)
        if asked:
            for callback in trainer.checkpoint_callbacks:
                if isinstance(callback, LatestState):
                    callback.save(trainer)
                    callback.finish()
            raise Interrupted(128 + (self.signal or signal.SIGTERM))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.handlers = {}

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")
