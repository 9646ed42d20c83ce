"""Take a finished run to another library: python src/export.py run=<run> format=<timm|huggingface> output=<folder>."""

from omegaconf import DictConfig

from vitlab.config.command import command


@command("export")
def main(cfg: DictConfig) -> None:
    from vitlab.programs.export import export

    export(cfg)


if __name__ == "__main__":
    main()
