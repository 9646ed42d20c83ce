"""Classify new images: python src/predict.py run=<run folder or checkpoint> images=<file, folder or glob>."""

from omegaconf import DictConfig

from vitlab.run.command import command


@command("predict")
def main(cfg: DictConfig) -> None:
    from vitlab.run.prediction import predict

    predict(cfg)


if __name__ == "__main__":
    main()
