"""Read from Hydra what it knows of the running job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import OmegaConf


@dataclass(frozen=True)
class Job:
    """The name of its config, its folder, the overrides and group choices it was given, the folder of its sweep in a
    multirun, and the folders that configs are read from."""

    config_name: str
    folder: Path
    overrides: list[str]
    choices: dict[str, str]
    sweep: Path | None
    folders: list[str]

    @classmethod
    def current(cls) -> "Job":
        hydra = HydraConfig.get()
        sweep = Path(hydra.sweep.dir).absolute() if hydra.mode == RunMode.MULTIRUN else None
        choices = {group: choice for group, choice in hydra.runtime.choices.items() if not group.startswith("hydra/")}
        started = not OmegaConf.is_missing(hydra.runtime, "output_dir")  # a sweep has no job yet when it is looked at
        folder = Path(hydra.runtime.output_dir if started else hydra.sweep.dir)
        as_written: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
        folders = [source.path for source in hydra.runtime.config_sources if source.schema == "file"]
        return cls(str(hydra.job.config_name), folder, as_written, choices, sweep, folders)

    def parsed(self) -> list[Override]:
        """Parse the overrides as Hydra does."""
        return OverridesParser.create().parse_overrides(self.overrides)
