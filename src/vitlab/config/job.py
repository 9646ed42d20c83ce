"""Read from Hydra what it knows of the running job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf


@dataclass(frozen=True)
class Job:
    """The name of its config, the folder it would write to (`named`: which the command line gives), the overrides and
    group choices it was given."""

    config_name: str
    folder: Path
    named: bool
    overrides: list[str]
    choices: dict[str, str]

    @classmethod
    def current(cls) -> "Job":
        hydra = HydraConfig.get()
        choices = {group: choice for group, choice in hydra.runtime.choices.items() if not group.startswith("hydra/")}
        named = any(word.lstrip("+").startswith("hydra.run.dir=") for word in hydra.overrides.hydra)
        as_written: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
        return cls(str(hydra.job.config_name), Path(hydra.run.dir).absolute(), named, as_written, choices)

    def parse_overrides(self) -> list[Override]:
        """Parse the overrides as Hydra does."""
        return OverridesParser.create().parse_overrides(self.overrides)
