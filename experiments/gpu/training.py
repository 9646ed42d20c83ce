"""Training runs of the large model, eager and compiled, and of one whose images grow."""

import torch
from program import for_steps, images_per_second, losses, train, waves
from step import Assignment, Found, UnavailableError
from torch._dynamo.utils import counters

from vitlab.counting import multiply_accumulates
from vitlab.run.hardware.float8 import obstacle

MOST_GRAPHS = 4


def eager(given: Assignment) -> Found:
    return measured(given)


def compiled(given: Assignment) -> Found:
    found = measured(given, "compile=true")
    graphs, breaks = graphs_and_breaks()
    assert breaks == 0, f"{breaks} graph breaks: {dict(counters['graph_break'])}"
    assert 0 < graphs <= MOST_GRAPHS, f"{graphs} graphs"
    return Found(f"{found.figure}, {graphs} graphs", {**found.figures, "graphs": graphs})


def float8(given: Assignment) -> Found:
    """A wide model, compiled, in float8 and in bfloat16. A device without float8 has its refusal: a CPU is meant to."""
    scale = given.scale
    if reason := obstacle(torch.device(scale.device)):
        if scale.device == "cpu":
            return Found(f"refused: {reason}", {})
        raise UnavailableError(reason)
    found = {}
    for name in ("bfloat16", "float8"):
        options = ("compile=true", f"float8={str(name == 'float8').lower()}")
        found[name] = measured(given, *options, model=scale.wide, name=name)
        torch.compiler.reset()
    speeds = [one.figures["images_per_second"] for one in found.values()]
    figure = "; ".join(f"{name}: {one.figure}" for name, one in found.items())
    return Found(
        f"{speeds[1] / speeds[0]:.2f} times the speed; {figure}", {name: one.figures for name, one in found.items()}
    )


def measured(given: Assignment, *options: str, model: tuple[str, ...] = (), name: str = "run") -> Found:
    """So many steps on images that the device holds: speed, memory, and a loss that falls."""
    scale = given.scale
    model = model or scale.model
    options = (*model, "data.cache.kind=device", *for_steps(scale.steps), *options)
    run = train(given.folder / name, waves(scale, given.folder, *options))
    first, last = losses(run)
    speed = images_per_second(run)
    memory = max(row["train/peak_memory_mib"] for row in run if "train/loss" in row.values)
    tflops = speed * operations_of_an_image(given, model) / 1e12
    figure = f"{speed:,.0f} images/s, {tflops:.0f} TFLOP/s, {memory:,.0f} MiB, loss {first:.3f} to {last:.3f}"
    names = ("images_per_second", "tflops", "peak_memory_mib", "first_loss", "last_loss")
    return Found(figure, dict(zip(names, (speed, tflops, memory, first, last), strict=True)))


def operations_of_an_image(given: Assignment, of_model: tuple[str, ...]) -> float:
    """Count a training step: forward, and twice that backward."""
    from hydra import compose, initialize_config_dir

    from vitlab.config.home import CONF
    from vitlab.run.building.model import build_model

    scale = given.scale
    sizes = ["data=synthetic", f"data.image_size={scale.image_size}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        model = build_model(compose("train", [*of_model, *sizes]).model)
    return 2 * 3 * multiply_accumulates(model, (3, scale.image_size, scale.image_size))


def graphs_and_breaks() -> tuple[int, int]:
    """What torch.compile has made in this process, and where it gave up."""
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def progressive(given: Assignment) -> Found:
    """Compiled, with images that grow: each size is another graph."""
    scale = given.scale
    options = ["compile=true", "resolution=progressive", "data.cache.kind=device", *for_steps(scale.steps)]
    run = train(given.folder / "run", waves(scale, given.folder, *scale.small, *options))
    first, last = losses(run)
    graphs, breaks = graphs_and_breaks()
    assert breaks == 0, f"{breaks} graph breaks: {dict(counters['graph_break'])}"
    return Found(f"{graphs} graphs, loss {first:.3f} to {last:.3f}", {"graphs": graphs})
