"""What a data set holds, and what is wrong with it: python src/survey.py data=folder data.source.root=DIR."""

import hydra
from omegaconf import DictConfig

from vitlab.home import CONF
from vitlab.run.command import command


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="survey")
@command
def main(cfg: DictConfig) -> None:
    from vitlab.run.survey import survey

    survey(cfg)


if __name__ == "__main__":
    main()
