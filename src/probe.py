"""How much of the classes frozen features tell: python src/probe.py run=<run or checkpoint>, or model=… data=…."""

from omegaconf import DictConfig

from vitlab.run.command import command


@command("probe")
def main(cfg: DictConfig) -> None:
    from vitlab.run.probing import probe

    probe(cfg)


if __name__ == "__main__":
    main()
