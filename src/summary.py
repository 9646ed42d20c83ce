"""What a model costs, before it runs: python src/summary.py [model=vit_b16] [data=cifar10] [memory_gib=80]."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("summary")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.summary import summarize

    summarize(cfg)


if __name__ == "__main__":
    main()
