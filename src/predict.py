"""Classify new images: python src/predict.py run=<run folder or checkpoint> images=<file, folder or glob>."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="predict")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.prediction import predict

    predict(cfg)


if __name__ == "__main__":
    main()
