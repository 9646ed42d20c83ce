"""Functions that configs may call as ${name:arguments}. OmegaConf knows them once this file is imported."""

import hashlib
import os
import re
import sys
from typing import Any

import omegaconf
from omegaconf import OmegaConf

from vitlab.config.help_texts import describe_command, options
from vitlab.config.home import CHECKOUT, ROOT
from vitlab.invocation import format_command
from vitlab.monitors import better

LONGEST_NAME = 100


def folder_name(overrides: str) -> str:
    """Make a folder name of overrides, without characters that Hydra or a file system cannot take back; long names end
    in a hash."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", overrides).strip("-.") or "defaults"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.blake2b(overrides.encode(), digest_size=4).hexdigest()
    return f"{name[: LONGEST_NAME - 9]}-{digest}"


def sweep_folder(name: str | None, study: str | None, time: str) -> str:
    """Give the folder of a sweep. One with a name, or from a study (named after it and what was changed in it), is
    found again; any other gets a new folder."""
    given = [word for word in sys.argv[1:] if "=" in word and not word.startswith(("study=", "engine", "hydra"))]
    changes = "_".join(given).replace("=", "-")
    if name or study:
        return f"runs/{name or folder_name('_'.join(filter(None, [study, changes])))}"
    return f"runs/{folder_name(changes)}/sweep_{time}"


def data_folder(name: str) -> str:
    """Give where downloads go: below VITLAB_DATA, else in data/ of the checkout, or of the folder in which an installed
    command is typed."""
    home = CHECKOUT if ROOT == CHECKOUT else os.getcwd()
    return os.path.join(os.environ.get("VITLAB_DATA", os.path.join(home, "data")), name)


def before_crop(image_size: int | None, share: float) -> int | None:
    """Pixels of a side, of which the central `share` has image_size pixels; None until these are found."""
    return None if image_size is None else round(image_size / share)


def together(*lengths: int | None) -> int | None:
    """The sum of lengths; None until all are found."""
    return None if None in lengths else sum(filter(None, lengths))


RESOLVERS = (
    options,
    describe_command,
    format_command,
    folder_name,
    sweep_folder,
    better,
    data_folder,
    before_crop,
    together,
)
OLD_NAME = omegaconf.__version__.startswith("2.3.")  # where register_resolver is another, older function
register: Any = OmegaConf.register_new_resolver if OLD_NAME else OmegaConf.register_resolver
for resolver in RESOLVERS:
    register(resolver.__name__, resolver, replace=True)
