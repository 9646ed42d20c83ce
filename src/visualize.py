"""Look into a model: python src/visualize.py run=<run folder or checkpoint> images=<file, folder or glob>."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="visualize")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.visualization import visualize

    visualize(cfg)


if __name__ == "__main__":
    main()
