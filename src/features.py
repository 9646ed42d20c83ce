"""The features of images, as a file: python src/features.py run=<run or checkpoint> output=features.npz."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("features")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.features import extract_features

    extract_features(cfg)


if __name__ == "__main__":
    main()
