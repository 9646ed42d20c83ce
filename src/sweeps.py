"""What the jobs of a sweep are at: python src/sweeps.py [NAME] [watch=true]."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("sweeps", first="sweep")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.sweeps import tell

    tell(cfg)


if __name__ == "__main__":
    main()
