"""A training batch as a picture: python src/preview.py [data=cifar10] [augmentation=randaugment] [same=4]."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="preview")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.preview import preview

    preview(cfg)


if __name__ == "__main__":
    main()
