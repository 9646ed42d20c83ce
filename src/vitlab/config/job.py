"""Read from Hydra what it knows of the running job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from vitlab.config.home import OF_THE_USER
from vitlab.invocation import shorten_path

REPEATED = ("hydra.run.dir=", "hydra.searchpath=")  # words for Hydra that say where a run is, and what it is read from


@dataclass(frozen=True)
class Job:
    """The name of its config, the folder it would write to (`named`: which the command line gives), the overrides and
    group choices it was given, and the `options` of its command beside the overrides: --config-dir, hydra.run.dir."""

    config_name: str
    folder: Path
    named: bool
    overrides: list[str]
    choices: dict[str, str]
    options: tuple[str, ...] = ()

    @classmethod
    def current(cls) -> "Job":
        hydra = HydraConfig.get()
        choices = {group: choice for group, choice in hydra.runtime.choices.items() if not group.startswith("hydra/")}
        own = [word for word in hydra.overrides.hydra if word.lstrip("+").startswith(REPEATED)]
        named = any("hydra.run.dir=" in word for word in own)
        options = (*(f"--config-dir={shorten_path(Path(folder))}" for folder in OF_THE_USER), *own)
        as_written: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
        return cls(str(hydra.job.config_name), Path(hydra.run.dir).absolute(), named, as_written, choices, options)

    def parse_overrides(self) -> list[Override]:
        """Parse the overrides as Hydra does."""
        return OverridesParser.create().parse_overrides(self.overrides)
