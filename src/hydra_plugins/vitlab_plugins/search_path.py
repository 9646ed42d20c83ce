"""Put experiments/ on Hydra's search path, for the groups recipe= and study=."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from vitlab.config.home import EXPERIMENTS


class ExperimentsSearchPath(SearchPathPlugin):
    """Appends the folder of recipes and studies."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="vitlab", path=f"file://{EXPERIMENTS}")
