"""Score a finished run on one of its splits: python src/evaluate.py run=<run folder or checkpoint> [split=val]."""

from omegaconf import DictConfig

from vitlab.run.command import command


@command("evaluate")
def main(cfg: DictConfig) -> None:
    from vitlab.run.evaluation import evaluate

    evaluate(cfg)


if __name__ == "__main__":
    main()
