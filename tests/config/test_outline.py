"""What is read of configs without Hydra, against what Hydra reads."""

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.outline import outline

RECIPES = [{"recipe": file.stem} for file in sorted((EXPERIMENTS / "recipe").glob("[!_]*.yaml"))]
CHOICES = [pytest.param(choices, marks=pytest.mark.slow) for choices in RECIPES]
CHOICES += [
    {},
    {"recipe": "deit_ti16_imagenet", "data": "cifar10"},
    {"study": "position", "recipe": "digits_distilled"},
]
CHOICES += [{"recipe": "digits_distilled", "model@teacher": "timm"}, {"recipe": "mae_cifar10_cpu", "loss": "focal"}]
CHOICES += [{"task": "masked_autoencoding", "callbacks": ["default", "ema", "swa"]}]
NO_FILES = ("hydra/", "fitting/", "trainer/_open")


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_configs_and_choices_are_those_that_hydra_finds(choices):
    words = [f"{key}={option}".replace("'", "") for key, option in choices.items()]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        found = GlobalHydra.instance().config_loader().compute_defaults_list("train", words, RunMode.RUN)
    chosen = dict(choices)
    names = [name for name in outline("train", chosen, [str(CONF), str(EXPERIMENTS)]) if not name.startswith(NO_FILES)]
    theirs = dict.fromkeys(one.config_path for one in found.defaults)  # a part of two models is one file
    assert names == [path for path in theirs if not path.startswith(NO_FILES)]
    options = found.overrides.known_choices
    assert {key: option for key, option in chosen.items() if not isinstance(option, list)}.items() <= options.items()
    assert options.keys() - chosen.keys() <= {key for key in options if key.startswith("hydra")}
