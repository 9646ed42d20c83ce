"""Load weights into a model that may be another, and follow the advice of each refusal until the logits are equal, or
no option makes them so."""

import itertools
import re

import torch
from foreign import images, loaded

from vitlab.errors import CheckpointError

OWN = [  # options of the model before the advice
    {"pool": pool, "fc_norm": after, "class_token": token, "num_registers": registers}
    for pool, after, token, registers in itertools.product(
        ("cls", "mean", "map"), (None, False, True), (True, False), (0, 2)
    )
    if token or pool != "cls"
]
SETTING = re.compile(r"model\.(\w+)=(\S+?)(?=[,; ]|$)")
LIMIT = 1e-4  # of the largest logit
TURNS = 4


def follow(source, theirs, **options):
    """Return how it ends: "equal", or the last refusal, and the options that the advice led to. Fails where weights are
    taken, the head among them, and the logits differ."""
    for _ in range(TURNS):
        try:
            ours, report = loaded(source, **options)
        except CheckpointError as error:
            advice = advised(str(error))
            if advice is None:
                return str(error), options
            options |= advice
        else:
            anew = [entry for entry in report.entries if entry.status == "initialised anew"]
            assert not anew, anew
            assert relative(ours.eval(), theirs) < LIMIT, options
            return "equal", options
    raise AssertionError(f"advice that leads nowhere: {options}")


def advised(message):
    """The options that a message says to set; None where it knows none."""
    found = re.search(r"; set (.*?), or ", message)
    return found and {key: parsed(value) for key, value in SETTING.findall(found[1])}


def parsed(text):
    constants = {"true": True, "false": False, "null": None}
    if text in constants:
        return constants[text]
    return int(text) if text.isdigit() else float(text) if re.fullmatch(r"[\d.e-]+", text) else text


def relative(model, other, size=32):
    with torch.inference_mode():
        found, expected = model(images(size)), other(images(size))
    expected = getattr(expected, "logits", expected)
    assert found.shape == expected.shape
    return ((found - expected).abs().max() / expected.abs().max()).item()
