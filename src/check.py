"""Would it train, and at what cost: python src/check.py, and all that src/train.py is to be given."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("check")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.check import check

    check(cfg)


if __name__ == "__main__":
    main()
