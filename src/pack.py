"""Pack a data set into a few large files: python src/pack.py data=<set> output=<folder>."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="pack")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.packing import pack

    pack(cfg)


if __name__ == "__main__":
    main()
