"""What a model costs, before it runs: python src/summary.py [model=vit_b16] [data=cifar10] [memory_gib=80]."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="summary")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.summary import summarize

    summarize(cfg)


if __name__ == "__main__":
    main()
