"""The names of ViT-5's own files (Wang et al., 2026, arXiv:2602.08071), which keep the frequencies of rotary positions.

d head width
"""

from typing import Any

import torch

from vitlab.errors import CheckpointError
from vitlab.layers.rotary_position import RegisterRotaryPosition, frequencies
from vitlab.weights import facebook
from vitlab.weights.form import Form
from vitlab.weights.renaming import Rules, Tensors, rename

RULES: Rules = ((r"\.gamma_([12])$", r".ls\1.gamma"),)
TEMPERATURES = {
    ".attn.rope.freqs": RegisterRotaryPosition.temperature,
    ".attn.rope_reg.freqs": RegisterRotaryPosition.register_temperature,
}


def read_facts(tensors: Tensors) -> dict[str, Any]:
    """Read off the number of heads. Raises CheckpointError for frequencies, (d/4,), that are not the published ones."""
    for name, found in tensors.items():
        for end, temperature in TEMPERATURES.items():
            if name.endswith(end) and not torch.allclose(found, frequencies(found.numel(), temperature), rtol=1e-5):
                raise CheckpointError(f"{name} of the source does not have ViT-5's temperature {temperature:g}")
    head_dim = 4 * max(1, tensors["blocks.0.attn.rope.freqs"].numel())
    return {"num_heads": len(tensors["norm.weight"]) // head_dim}


def rename_tensors(tensors: Tensors) -> Tensors:
    return rename({name: value for name, value in tensors.items() if not name.endswith(tuple(TEMPERATURES))}, RULES)


FORM = Form(
    name="ViT-5",
    recognises=lambda names: {"blocks.0.attn.rope.freqs", "norm.weight"} <= names,
    rename=rename_tensors,
    interpolation=facebook.FORM.interpolation,
    facts={
        "norm": "rms_norm",
        "norm_eps": 1e-6,
        "mlp": "gelu",
        "position": "learned_rotary_registers",
        "pre_norm": False,
        "pool": "cls",
    },
    read_facts=read_facts,
)
