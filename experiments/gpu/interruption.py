"""DistributedDataParallel with one device: SIGTERM ends it with 143 and its state saved, and it goes on from there."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from program import SRC, rows, train, waves
from step import Assignment, Found

from vitlab.checkpoints import file


def interrupt(given: Assignment) -> Found:
    scale, folder = given.scale, given.folder / "run"
    ddp = ["trainer=ddp", "trainer.devices=1", f"trainer.accelerator={scale.accelerator}", "trainer.max_epochs=10000"]
    command = [sys.executable, str(SRC / "train.py"), *waves(scale, given.folder, *scale.small, *ddp)]
    process = subprocess.Popen([*command, f"hydra.run.dir={folder}"])
    deadline = time.monotonic() + 0.6 * given.seconds
    while last_step(folder) < 3 * scale.log_every and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert process.poll() is None, f"train.py ended by itself, with status {process.returncode}"
    assert last_step(folder) >= 3 * scale.log_every, f"step {last_step(folder)} after {0.6 * given.seconds:.0f} s"
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    status = process.wait(timeout=0.3 * given.seconds)
    seconds = time.monotonic() - asked
    assert status == 143, f"SIGTERM ended it with status {status}, and not with 143"
    step = file.read(folder / "checkpoints" / "latest.ckpt")["global_step"]
    assert step >= last_step(folder), f"the saved state is of step {step}, and {last_step(folder)} were logged"
    end = step + 2 * scale.log_every
    run = train(folder, [f"resume={folder}", "trainer.max_epochs=-1", f"trainer.max_steps={end}"])
    backend = torch.distributed.get_backend() if torch.distributed.is_initialized() else "none"
    steps = [row.step for row in run]
    assert steps == sorted(set(steps)), f"metrics.csv has steps {steps}"
    assert steps[-1] == end, f"the resumed run ended at step {steps[-1]}, and not at {end}"
    assert backend == ("nccl" if scale.device == "cuda" else "gloo"), f"the processes met through {backend}"
    figures = {"status": status, "seconds_to_end": seconds, "saved_step": step, "backend": backend}
    return Found(f"{backend}: 143 after {seconds:.1f} s at step {step}, went on to step {end}", figures)


def last_step(folder: Path) -> int:
    """That has been logged so far."""
    logged = rows(folder)
    return logged[-1].step if logged else 0
