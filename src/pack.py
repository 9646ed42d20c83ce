"""Pack a data set into a few large files: python src/pack.py data=<set> output=<folder>."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("pack")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.pack import pack

    pack(cfg)


if __name__ == "__main__":
    main()
