"""Read recipes and studies for Hydra: what goes with a choice comes in a config of its own, which knows the choices."""

from typing import ClassVar

from hydra._internal.core_plugins import file_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

from vitlab.config.recipe import FITTING, fitting_config, is_layer, split


class FileConfigSource(file_config_source.FileConfigSource):
    """A folder of YAMLs, anywhere on the search path. Hydra's own class of this name is registered later, and so not
    used."""

    newest: ClassVar[list[str]] = []  # the folders of the newest search path

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        if provider == "main":  # the first of a search path
            FileConfigSource.newest = []
        self.folders = FileConfigSource.newest
        self.folders.append(self.path)

    def is_config(self, config_path: str) -> bool:
        return config_path.startswith(FITTING) or super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        if config_path.startswith(FITTING):
            fitting = fitting_config(config_path, self.folders)
            return ConfigResult(self.provider, self.full_path(), fitting, {"package": "_global_"})
        loaded = super().load_config(config_path)
        if is_layer(config_path) and isinstance(loaded.config, DictConfig):
            loaded.config, _ = split(loaded.config)
        return loaded


SourcesRegistry.instance().register(FileConfigSource)
