"""The features of images, as a file: python src/features.py run=<run or checkpoint> output=features.npz."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="features")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.feature_extraction import extract_features

    extract_features(cfg)


if __name__ == "__main__":
    main()
