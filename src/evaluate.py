"""Score a finished run on one of its splits: python src/evaluate.py run=<run folder or checkpoint> [split=val]."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="evaluate")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.evaluation import evaluate

    evaluate(cfg)


if __name__ == "__main__":
    main()
