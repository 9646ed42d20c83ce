"""FSDP on one device beside the same run without it, and the memory that was predicted for it."""

import contextlib
import io
import re
import sys

from program import SRC, for_steps, images_per_second, losses, train, waves
from step import Assignment, Found


def beside_whole(given: Assignment) -> Found:
    """The same steps with weights in one piece and sharded over one device: losses agree."""
    scale = given.scale
    common = (*scale.model, "data.cache.kind=device", *for_steps(scale.steps))
    sharded = ["trainer=fsdp", "trainer.devices=1", f"trainer.accelerator={scale.accelerator}"]
    sharded += [word for word in scale.trainer if word.startswith("trainer.precision=")]
    runs = {"whole": common, "fsdp": (*common, *sharded), "reduce_once": (*common, *sharded, *accumulated(given))}
    rows = {name: train(given.folder / name, waves(scale, given.folder, *words)) for name, words in runs.items()}
    first = {name: losses(run) for name, run in rows.items()}
    difference = abs(first["fsdp"][0] - first["whole"][0])
    speed = {name: images_per_second(run) for name, run in rows.items()}
    memory = {
        name: max(row["train/peak_memory_mib"] for row in run if "train/loss" in row.values)
        for name, run in rows.items()
    }
    predicted = predict_memory(waves(scale, given.folder, *common))
    figure = ", ".join(f"{name} {speed[name]:,.0f} images/s, {memory[name]:,.0f} MiB" for name in runs)
    assert difference < 1e-2, f"the first losses differ by {difference}: {figure}"
    figures = {"images_per_second": speed, "peak_memory_mib": memory, "predicted": predicted, "difference": difference}
    return Found(f"{figure}; predicted without FSDP: {predicted}; first losses differ by {difference:.1e}", figures)


def accumulated(given: Assignment) -> tuple[str, ...]:
    return (f"data.device_batch_size={given.scale.batch // 2}",)


def predict_memory(words: list[str]) -> str:
    """What check.py says that a device holds."""
    import check as program

    said = io.StringIO()
    sys.argv = [str(SRC / "check.py"), *words, "seconds=0"]
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        program.main()
    found = re.search(r"^memory +(.+?) of ", said.getvalue(), re.M)
    assert found, said.getvalue()
    return found[1]
