"""Put experiments/ on Hydra's search path, for the groups recipe= and study=, and the user's own folder of configs."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from vitlab.config.home import EXPERIMENTS, OF_THE_USER


class ExperimentsSearchPath(SearchPathPlugin):
    """Appends the folder of recipes and studies, and that of --config-dir."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="vitlab", path=f"file://{EXPERIMENTS}")
        for folder in OF_THE_USER:
            search_path.append(provider="command-line", path=f"file://{folder}")
