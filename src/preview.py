"""A training batch as a picture: python src/preview.py [data=cifar10] [augmentation=randaugment] [same=4]."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("preview")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.preview import preview

    preview(cfg)


if __name__ == "__main__":
    main()
