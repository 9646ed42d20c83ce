"""Find the configs: beside src/ in a checkout, inside the package in an installed wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parents[1]
ROOT = CHECKOUT if (CHECKOUT / "conf" / "train.yaml").is_file() else PACKAGE
CONF = ROOT / "conf"
EXPERIMENTS = ROOT / "experiments"
OF_THE_USER: list[str] = []  # folders of configs that the running command was given by --config-dir
