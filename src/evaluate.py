"""Score a finished run on one of its splits: python src/evaluate.py run=<run folder or checkpoint> [split=val]."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("evaluate")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.evaluate import evaluate

    evaluate(cfg)


if __name__ == "__main__":
    main()
