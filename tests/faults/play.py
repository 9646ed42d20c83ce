"""Kill and signal runs at random moments, go on with them, and compare with the run that nobody disturbed.

python tests/kill_runs.py FOLDER NUMBER SEED: so many kills and signals. Runs are forked from this process, which has
imported everything: a start costs a tenth of a second. The last line says what was done; status 1 with what differs.
"""

import csv
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

SRC = Path(__file__).parents[1] / "src"
sys.path[:0] = [str(SRC), str(Path(__file__).parent)]
os.environ |= {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}

import pytorch_lightning  # noqa: E402, F401 - for the runs that are forked
import torch  # noqa: E402
from conftest import BARE, TINY, chosen  # noqa: E402

import train  # noqa: E402
import vitlab.programs.train  # noqa: E402, F401
from vitlab.checkpoints import file, writer  # noqa: E402

OPTIONS = [*TINY, *BARE, "trainer.max_epochs=4", "global_batch_size=256", "data.device_batch_size=128"]
OPTIONS += ["mixing=mixup_cutmix", "model.drop_rate=0.1", "callbacks=[default,ema]", "callbacks.ema.decay=0.8"]
OPTIONS += ["callbacks.latest_state.every_n_steps=3", "trainer.log_every_n_steps=5"]  # 16 steps
SIGNALS = [signal.SIGKILL] * 5 + [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
TIMED = ("train/images_per_second", "train/seconds", "train/peak_memory_mib")
STATE = ("state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers", "sums", "loops")


def started(folder: Path, *overrides: str) -> int:
    """Fork a run, and return its process."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if os.getpid() % 2:
            mock.patch.object(writer, "LARGE", 0).start()  # half of the starts write while training goes on
        sys.argv = [str(SRC / "train.py"), *chosen(*overrides)]
        train.main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        status = 130
    finally:
        import atexit

        atexit._run_exitfuncs()
        os._exit(status)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def go_on(folder: Path, workers: int) -> int:
    """Start the run, or go on with it; one that had saved nothing begins anew."""
    if any((folder / "checkpoints" / name).is_file() for name in ("latest.ckpt", "previous.ckpt")):
        return started(folder, f"resume={folder}")
    shutil.rmtree(folder, ignore_errors=True)
    return started(folder, *OPTIONS, f"data.loading.num_workers={workers}", f"hydra.run.dir={folder}")


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def differences(whole: Path, run: Path) -> list[str]:
    """What is not as in the run that nobody disturbed."""
    found = []
    states = [file.read(folder / "checkpoints" / "latest.ckpt") for folder in (whole, run)]
    found += [key for key in STATE if not same(states[0][key], states[1][key])]
    best = [file.read(folder / "checkpoints" / "best.ckpt") for folder in (whole, run)]
    found += [f"best {key}" for key in ("state_dict", "score", "global_step") if not same(best[0][key], best[1][key])]
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, run)]
    found += [key for key in ("test", "last", "score", "best_step", "steps") if results[0][key] != results[1][key]]
    tables = []
    for folder in (whole, run):
        with open(folder / "metrics.csv", newline="") as lines:
            rows = list(csv.DictReader(lines))
        tables.append([{name: value for name, value in row.items() if name not in TIMED} for row in rows])
    found += ["metrics.csv"] if tables[0] != tables[1] else []
    json.loads((run / "provenance.json").read_text())
    left = [
        p.name for p in [*run.glob(".*"), *(run / "checkpoints").glob(".*")] if p.name not in (".hydra", ".identity")
    ]
    return found + left


def main(folder: Path, number: int, seed: int) -> None:
    chosen = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    assert ended(go_on(folder / "whole", 0)) == 0, (folder / "whole.log").read_text()
    length = time.monotonic() - begun
    done: Counter[str] = Counter()
    faults = []
    runs = 0
    while sum(done.values()) < number:
        run, workers, kills = folder / f"run{runs}", chosen.choice([0, 0, 2]), chosen.randint(1, 4)
        runs += 1
        for _ in range(kills):
            number_of, moment = chosen.choice(SIGNALS), chosen.uniform(0, length)
            pid = go_on(run, workers)
            time.sleep(moment)
            os.kill(pid, number_of)
            status = ended(pid)
            if status == 0:  # it was done before
                break
            done[signal.Signals(number_of).name] += 1
            if status not in (-number_of, 128 + number_of):
                faults.append(f"{run.name}: {signal.Signals(number_of).name} ended with {status}")
        status = ended(go_on(run, workers))
        faults += [f"{run.name}: resumed with {status}"] if status else []
        faults += [f"{run.name}: {name}" for name in (differences(folder / "whole", run) if not status else ())]
        if not faults:
            shutil.rmtree(run)
        print(f"{sum(done.values())} of {number}, {len(faults)} fault(s)", flush=True)
    print(f"{dict(done)} in {runs} runs of {length:.1f} s: {faults or 'nothing differs'}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), int(sys.argv[3]))
