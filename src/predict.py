"""Classify new images: python src/predict.py run=<run folder or checkpoint> images=<file, folder or glob>."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("predict")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.predict import predict

    predict(cfg)


if __name__ == "__main__":
    main()
