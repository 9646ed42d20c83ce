"""Keep the newest state to resume from, and the one before it."""

import time
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from torch import nn

from vitlab.checkpoints import file
from vitlab.checkpoints.background import Background
from vitlab.checkpoints.copies import Copies, link
from vitlab.checkpoints.run_folder import CHECKPOINTS, LATEST, check_room
from vitlab.checkpoints.writer import Writer
from vitlab.distributed.sharding import get_own_parameters, unshard_tensor
from vitlab.errors import NonFiniteError
from vitlab.ranges import Count, Natural, Positive

if TYPE_CHECKING:
    from vitlab.checkpoints.chain import Chain

AGREE = 20  # optimizer steps between two looks at the clock, where several processes must see the same
SPREAD, MOST_BYTES = 8, 50_000_000  # keep_states=auto: so many states, if they take no more together


class LatestState(Checkpoint):
    """Keeps checkpoints/latest.ckpt: after every `every_n_steps` optimizer steps, `every_n_minutes` minutes after the
    one before (null: no clock), at the end of each epoch that ends in a validation, and at the end of the run.
    previous.ckpt is the one before it, should the newer one be damaged.

    The states after multiples of `keep_every_n_steps` optimizer steps stay, as step_N.ckpt; null keeps none. So do
    `keep_states` of those that are saved anyway, spread evenly over the run, from which `verify` computes it again;
    auto: up to 8 that take at most 50 MB together. chain.jsonl gets a line for each state. `copy_to`
    is a folder at any address of fsspec, such as s3://bucket/runs, to which each newest state goes while training goes
    on. So does a large state to the disk: training waits until it is copied within the memory, and for the state before
    it. One that cannot be written or copied ends the run before its next step. A state is saved between steps only,
    when all that was due after the last one (validation, best model, early stopping) is done, so that the resumed run
    is the uninterrupted one. Diverged weights are never saved: raises NonFiniteError instead, and StorageError without
    room.
    """

    def __init__(
        self,
        *,
        every_n_steps: Count,
        every_n_minutes: Positive | None,
        keep_every_n_steps: Count | None,
        keep_states: Natural | Literal["auto"],
        copy_to: str | None,
    ):
        super().__init__()
        self.every_n_steps = every_n_steps
        self.every_n_minutes = every_n_minutes
        self.keep_every_n_steps = keep_every_n_steps
        self.keep_states = keep_states
        self.copies = None if copy_to is None else Copies(copy_to)
        self.saved_step = 0
        self.first_step: int | None = None  # of this start; None where nothing is left to train
        self.saved_at = time.monotonic()
        self.chain: Chain | None = None

    @cached_property
    def background(self) -> Background:
        """Return the thread that writes the latest state and the best model while training goes on."""
        return Background()

    @cached_property
    def writer(self) -> Writer:
        return Writer(self.background)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.saved_step, self.saved_at = trainer.global_step, time.monotonic()
        self.first_step, self.chain = trainer.global_step, None

    def open_chain(self, trainer: pl.Trainer) -> "Chain":
        """Return the chain of digests of the run, which is read when something is saved first."""
        from vitlab.checkpoints.chain import Chain

        if self.chain is None:
            first = trainer.global_step if self.first_step is None else self.first_step
            self.chain = Chain(Path(trainer.default_root_dir), trainer.lightning_module.record, first)
        return self.chain

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches:
            return
        if trainer.global_step != self.saved_step and self.is_due(trainer):
            self.save(trainer)
        elif self.background.begun:
            self.background.check()

    def is_due(self, trainer: pl.Trainer) -> bool:
        """Whether the state after this step is to be saved; all ranks say the same."""
        step = trainer.global_step
        if step - self.saved_step >= self.every_n_steps or (
            self.keep_every_n_steps and not step % self.keep_every_n_steps
        ):
            return True
        if self.every_n_minutes is None or (trainer.world_size > 1 and step % AGREE):
            return False
        over = time.monotonic() - self.saved_at >= 60 * self.every_n_minutes
        return trainer.strategy.reduce_boolean_decision(over, all=False) if trainer.world_size > 1 else over

    def is_kept(self, step: int) -> bool:
        """Whether the state after this step stays."""
        return self.keep_every_n_steps is not None and step % self.keep_every_n_steps == 0

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        every = trainer.check_val_every_n_epoch if trainer.enable_validation else None
        validated = every is not None and (trainer.current_epoch + 1) % every == 0
        if (
            validated
            or self.is_kept(trainer.global_step)
            or trainer.should_stop
            or trainer.global_step >= pl_module.num_steps
        ):
            self.save(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.finish()

    def finish(self) -> None:
        """Wait until all is written and copied. Raises StorageError for what cannot be."""
        self.background.finish()
        self.writer.finish()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Let what is under way come to its end, which raises no other error in place of this one."""
        with suppress(Exception):
            self.background.finish()

    def save(self, trainer: pl.Trainer) -> None:
        """Save the present state, unless it is saved already."""
        step = trainer.global_step
        if step == self.saved_step or trainer.fast_dev_run:
            return
        check_finite(trainer.lightning_module, step)
        self.writer.wait()
        latest = Path(trainer.default_root_dir) / CHECKPOINTS / f"{LATEST[0]}.ckpt"
        if trainer.is_global_zero and latest.is_file():
            check_room(Path(trainer.default_root_dir), latest.stat().st_size)
        trainer.save_checkpoint(latest, weights_only=False, storage_options=partial(self._keep, trainer, step))
        self.saved_step, self.saved_at = step, time.monotonic()

    def _keep(self, trainer: pl.Trainer, step: int, state: dict[str, Any], latest: Path) -> None:
        """Write a state, and put it where else it goes."""
        steps = (self.saved_step, step, trainer.lightning_module.num_steps)
        write = partial(self._write, self.open_chain(trainer), steps, latest)
        self.writer.write(state, write, partial(self._copy, latest))

    def _write(self, chain: "Chain", steps: tuple[int, int, int], latest: Path, state: dict[str, Any]) -> None:
        before, step, last = steps
        add = partial(chain.add_state, step, state=state)
        file.write(state, latest, previous=latest.with_name(f"{LATEST[1]}.ckpt"), chain=add)
        count = self.count_states(latest.stat().st_size)
        if self.is_kept(step) or before * count // last < step * count // last:
            link(latest, latest.with_name(f"step_{step}.ckpt"))

    def count_states(self, size: int) -> int:
        """Return how many states of `size` bytes are kept, spread over the run."""
        return min(SPREAD, MOST_BYTES // size) if self.keep_states == "auto" else self.keep_states

    def _copy(self, latest: Path) -> None:
        if self.copies is not None:
            self.copies.copy(latest, f"{latest.parents[1].name}/{latest.name}")


def check_finite(module: nn.Module, step: int) -> None:
    """Raise NonFiniteError if any weight is NaN or infinite."""
    if not unshard_tensor(nn.utils.get_total_norm(get_own_parameters(module).values())).isfinite():
        raise NonFiniteError(
            f"the weights are no longer finite at step {step}; the last good checkpoint is kept; lower optimizer.lr, "
            "lengthen the warm-up, or use trainer.precision=32-true"
        )
