"""Take a finished run to another library: python src/export.py run=<run> format=<timm|huggingface> output=<folder>."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="export")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.export import export

    export(cfg)


if __name__ == "__main__":
    main()
