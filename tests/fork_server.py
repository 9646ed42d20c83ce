"""Loaded once by the server that `forked` forks commands from: libraries and files of configs are read.

No backward pass runs here: torch refuses one in the fork of a process that has run another.
"""

import conftest  # noqa: F401  # configs are read once

import vitlab.programs.train  # noqa: F401
from vitlab.config.composition import compose, initialize_hydra

with initialize_hydra("train"):
    compose("train", ["model=vit_mu4", "data=digits"])
