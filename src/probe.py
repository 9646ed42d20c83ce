"""How much of the classes frozen features tell: python src/probe.py run=<run or checkpoint>, or model=… data=…."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("probe")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.probe import probe

    probe(cfg)


if __name__ == "__main__":
    main()
