"""Whether a run that is resumed is the same bit for bit: eager and compiled, with deterministic algorithms and without.

Only the eager run with deterministic algorithms has to be; of the others the difference is measured.
"""

import shutil

import torch
from program import for_steps, train, waves
from step import Assignment, Found

from vitlab.checkpoints import file

WAYS = {
    "deterministic": ("+trainer.deterministic=true",),
    "eager": (),
    "compiled": ("compile=true",),
}


def bit_by_bit(given: Assignment) -> Found:
    scale, half = given.scale, given.scale.steps // 2
    found = {}
    for name, options in WAYS.items():
        kept = (f"callbacks.latest_state.keep_every_n_steps={half}", f"callbacks.latest_state.every_n_steps={half}")
        words = waves(scale, given.folder, *scale.small, *kept, *for_steps(2 * half), *options)
        folder = given.folder / name
        train(folder, words)
        whole = weights(folder)
        again = given.folder / f"{name}_again"
        shutil.copytree(folder, again)
        for path in (again / "checkpoints").glob("[lp]*.ckpt"):
            path.unlink()
        train(again, [f"resume={again / 'checkpoints' / f'step_{half}.ckpt'}"])
        resumed = weights(again)
        found[name] = max((resumed[key].float() - value.float()).abs().max().item() for key, value in whole.items())
        torch.compiler.reset()
        torch.use_deterministic_algorithms(False)
    figure = ", ".join(f"{name} {'bit for bit' if not far else f'within {far:.1e}'}" for name, far in found.items())
    assert found["deterministic"] == 0, figure
    return Found(figure, {"largest_difference": found})


def weights(folder):
    return file.read(folder / "checkpoints" / "latest.ckpt")["state_dict"]
