"""What faults come to: trainings of several kinds, by one process or two, and jobs that write files."""

import socket
import threading
from contextlib import ExitStack
from pathlib import Path

from conftest import BARE, TINY, chosen, image_folder
from manifest import Fault
from wandb_server import serve as serve_wandb

SAVED = [*TINY, *BARE, "trainer.log_every_n_steps=5", "callbacks.latest_state.every_n_steps=3"]
IMAGES = [*SAVED, "data=digits", "trainer.max_epochs=4", "global_batch_size=256", "data.device_batch_size=128"]
IMAGES += ["mixing=mixup_cutmix", "model.drop_rate=0.1", "data.loading.stall_timeout=20"]  # 16 steps
AVERAGED = ["callbacks=[default,ema]", "callbacks.ema.decay=0.8"]
OWN = [*SAVED, "data.num_classes=2", "data.image_size=16", "global_batch_size=8", "trainer.max_epochs=2"]
OWN += ["data.split.val_fraction=0.2", "data.split.test_fraction=0.1", "augmentation=color_jitter"]
OWN += ["data.loading.stall_timeout=20"]
TWO = ["trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true"]
TWO += ["trainer.strategy.timeout_minutes=0.4", "data.device_batch_size=64"]


def words_of(target: str, place: Path, folder: Path) -> list[str]:
    """The command line of a target without its data workers."""
    read, run = f"data.source.root={place / 'given' / 'images'}", f"hydra.run.dir={folder}"
    words = {
        "images": [*IMAGES, *AVERAGED, run],
        "shards": [
            *OWN,
            "data=shards",
            f"data.source.root={place / 'given' / 'shards'}",
            "data.order.shuffle_window=2",
            run,
        ],
        "ddp": [*IMAGES, *AVERAGED, "trainer=ddp", *TWO, run],
        "fsdp": [*IMAGES, "trainer=fsdp", *TWO, run],
        "wandb": [*IMAGES, *AVERAGED, "logger=wandb", "logger.wandb.upload_minutes=0.2", run],
        "cache": [*OWN, "data=folder", read, f"data.source.index_root={folder / 'index'}", "data.cache.kind=decoded"],
        "pack": ["data=folder", read, "data.num_classes=2", f"output={folder}", "shard_size=0.02"],
        "export": [f"run={place / 'given' / 'run'}", f"output={folder}", "overwrite=true"],
        "predict": [
            f"run={place / 'given' / 'run'}",
            f"images={place / 'given' / 'images'}",
            f"output={folder / 'found.csv'}",
        ],
    }[target]
    if target == "cache":
        words += [f"data.cache.root={folder / 'cache'}", f"hydra.run.dir={folder.with_name('run')}"]
    return chosen(*words)


def entry_of(target: str) -> str:
    return target if target in ("pack", "export", "predict") else "train"


def processes_of(target: str) -> list[dict[str, str]]:
    """The environment of each process: those of several are started as torchrun does."""
    if target not in ("ddp", "fsdp"):
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "faults", "TORCHELASTIC_RESTART_COUNT": "0"}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


def make_images(place: Path) -> None:
    """What runs and jobs read: 80 images in two classes."""
    if not (place / "images").is_dir():
        image_folder(place / "drawn", count=40, size=24)
        (place / "drawn").rename(place / "images")


def serve(stack: ExitStack, fault: Fault, seconds: float) -> dict[str, str]:
    """The environment of a run whose W&B server refuses, is silent, or dies at the moment of the fault."""
    if not fault.kind.startswith("server"):
        return {}
    online = {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false"}
    listening = stack.enter_context(socket.socket())
    listening.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    if fault.kind == "server is silent":
        listening.listen()
    if fault.kind == "server dies":
        server = stack.enter_context(serve_wandb())
        url, later = server.url, threading.Timer(2 + fault.moment * seconds, setattr, (server, "dead", True))
        later.start()
        stack.callback(later.cancel)
    return {**online, "WANDB_BASE_URL": url}
