"""What a data set holds, and what is wrong with it: python src/survey.py data=folder data.source.root=DIR."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("survey")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.survey import survey

    survey(cfg)


if __name__ == "__main__":
    main()
