"""A recipe's values go with its choices: another optimizer, model or crop brings its own."""

import shutil
from pathlib import Path

import pytest
from conftest import BARE
from omegaconf import OmegaConf

from vitlab.config.home import CONF

QUICK = [*BARE, "data=synthetic", "data.cache.kind=none", "data.source.num_samples=200", "global_batch_size=16"]
QUICK += ["trainer=cpu", "trainer.precision=32-true", "logger=none", "data.loading.num_workers=0"]
QUICK += ["trainer.max_epochs=-1", "trainer.max_steps=1"]


@pytest.fixture
def config(cli):
    """config(*overrides): what a run of one step was made of."""

    def run(*overrides):
        shutil.rmtree("run", ignore_errors=True)
        done = cli("train", *QUICK, *overrides, folder="run", tiny=False)
        assert done.status == 0, done.err
        return OmegaConf.load(done.folder / "config.yaml"), done.out

    return run


SMALL = ["model.depth=1", "model.embed_dim=12", "model.num_heads=2"]


def test_another_option_has_its_own_values(config):
    cfg, out = config("recipe=cifar10_cpu", "mixing=none", "resolution=full", "optimizer=adamw", *SMALL)
    assert cfg.mixing == {} == cfg.resolution
    assert (cfg.optimizer.lr, "momentum" in cfg.optimizer.algorithm) == (5e-4, False)
    assert (cfg.model.position, cfg.loss.label_smoothing) == ("sincos_2d", 0.0)  # the rest of the recipe
    assert "recipe=cifar10_cpu chose otherwise" in out
    assert "is left out: mixing=none, resolution=full, optimizer=adamw; the run's" in out


def test_the_recipes_own_choice_keeps_the_recipes_values_also_when_it_is_given(config):
    cfg, out = config("recipe=cifar10_cpu", "mixing=cutmix", "optimizer=muon", *SMALL)
    assert (cfg.mixing.rate, cfg.optimizer.lr, cfg.resolution.scales) == (0.5, 3e-3, [0.75])
    assert "chose otherwise" not in out


def test_what_the_command_line_states_holds_for_the_other_option(config):
    cfg, _ = config(
        "recipe=cifar10_cpu", "optimizer=lion", "optimizer.lr=2e-4", "mixing=mixup", "mixing.rate=1", *SMALL
    )
    assert (cfg.optimizer.lr, cfg.optimizer.weight_decay, cfg.mixing.rate) == (2e-4, 0.5, 1)


def test_another_model_of_the_same_kind_has_its_own_sizes(config):
    cfg, _ = config("recipe=cifar10_cpu", "model=vit_mu4")
    own = OmegaConf.load(CONF / "model" / "vit_mu4.yaml")
    assert {name: cfg.model[name] for name in own if name != "defaults"}.items() <= own.items()
    assert (cfg.model.position, cfg.model.class_token, cfg.model.pool) == ("sincos_2d", False, "mean")


def test_another_size_has_its_own_hidden_layers_and_weights(config, cli):
    cfg, _ = config("recipe=cifar10", "model=vit_mu4", "augmentation=none")
    assert cfg.model.mlp_ratio == OmegaConf.load(CONF / "model" / "_vit.yaml").mlp_ratio
    assert cfg.schedule.final_ratio == 0.01  # the rest of the recipe
    fine = [
        "recipe=vit_b16_cifar10",
        "data.image_size=32",
        "data.split.val_fraction=0.1",
        "crop=whole",
        "model=vit_mu4",
    ]
    run = cli("train", *QUICK, *fine, tiny=False)
    assert run.status == 2
    assert "model.pretrained has no value; set it to weights of vit_mu4, or to null" in run.err
    cfg, _ = config(*fine, "model.pretrained=null", "schedule=constant")
    assert cfg.model.pretrained is None


def test_a_model_of_another_kind_is_as_it_states(config):
    cfg, _ = config("recipe=digits", "model=resnet20", "model.depth=8")
    assert cfg.model.depth == 8
    assert "position" not in cfg.model
    assert cfg.callbacks.ema.decay == 0.99


def test_the_crop_goes_with_the_data(config):
    cfg, _ = config("recipe=deit_ti16_imagenet", "model=vit_mu4", "data.order.repeats=1")
    assert cfg.crop.train._target_ == "vitlab.data.WholeImage"
    assert "scale" not in cfg.crop.train
    assert "resize_size" not in cfg.crop.eval


@pytest.mark.parametrize("size", [32, 48])
def test_the_centre_of_a_test_image_is_a_share_of_it(config, size):
    options = ["model=vit_mu4", f"data.image_size={size}", f"data.source.image_size={size}", "data.order.repeats=1"]
    cfg, _ = config("recipe=deit_ti16_imagenet", "crop=random_resized", *options)
    assert cfg.crop.eval.resize_size == round(size / 0.875)


def test_callbacks_that_are_not_chosen_leave_nothing(config):
    cfg, _ = config("recipe=digits", "data=synthetic", "callbacks=[default]", *SMALL)
    assert "ema" not in cfg.callbacks


def test_a_teacher_comes_and_goes_with_the_task(config):
    teach = ["task=distillation", "teacher.pretrained=taught"]
    config("recipe=digits", *SMALL)
    Path("run").rename("taught")
    cfg, _ = config("recipe=digits", *SMALL, *teach)
    assert cfg.teacher == {"pretrained": "taught"}
    cfg, _ = config("recipe=digits_distilled", "data.split.labels_per_class=null", "task=classification", *SMALL)
    assert "teacher" not in cfg


def test_a_study_is_of_a_recipe(config):
    cfg, _ = config("study=learning_rate", "recipe=cifar10_cpu", "hydra.mode=RUN", *SMALL)
    assert (cfg.model.position, cfg.optimizer.lr, cfg.optimizer.hidden_only) == ("sincos_2d", 3e-3, True)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["recipe=cifar10_cpu_resnet", "optimizer=adamw", "optimizer.algorithm.nesterov=true"],
            ["optimizer.algorithm.nesterov"],
        ),
        (
            ["recipe=digits", "callbacks=[default]", "callbacks.ema.decay=0.9"],
            ["callbacks.ema is not among the chosen"],
        ),
        (["recipe=few_labels_mae"], ["model.pretrained has no value; set it to a run of recipe=mae_cifar10_cpu"]),
        (["recipe=[digits,cifar10]"], ["recipe= takes one", "-m recipe=A,B"]),
        (["+model.mean=[0.5,0.5,0.5]"], ["VisionTransformer takes no mean"]),
        (["+optimizer.algorithm.nesterov=true"], ["optimizer.algorithm.nesterov", "AdamW takes no nesterov"]),
        (["model=timm", "model.name=vit_tiny_patch16_224"], ["the model gives no logits for images of 3x32x32", "224"]),
    ],
)
def test_what_an_option_does_not_have_is_named(cli, overrides, words):
    run = cli("train", *QUICK, *overrides, folder="run", tiny=False)
    assert run.status == 2, run.err
    assert all(word in run.err for word in words), run.err
    assert not (run.folder / "config.yaml").exists()
