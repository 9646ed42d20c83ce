"""Look into a model: python src/visualize.py run=<run folder or checkpoint> images=<file, folder or glob>."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("visualize")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.visualize import visualize

    visualize(cfg)


if __name__ == "__main__":
    main()
