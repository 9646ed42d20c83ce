"""Train a model: python src/train.py [model=vit_b16] [data=cifar10] [trainer.max_epochs=5] [-m for a sweep]."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("train")
def main(cfg: DictConfig) -> float | None:
    from vitlab.programs.train import train  # torch and Lightning load here, after a typo has been refused

    return train(cfg)


if __name__ == "__main__":
    main()
