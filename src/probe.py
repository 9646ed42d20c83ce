"""How much of the classes frozen features tell: python src/probe.py run=<run or checkpoint>, or model=… data=…."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="probe")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.probing import probe

    probe(cfg)


if __name__ == "__main__":
    main()
