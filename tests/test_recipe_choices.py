"""A recipe's values go with its choices: another optimizer, model or crop brings its own. What --cfg job shows is what
runs."""

import itertools

import pytest
from conftest import BARE, mostly_slow
from omegaconf import OmegaConf
from test_configs import NEEDED, unresolved

from vitlab.config.home import CONF, EXPERIMENTS

QUICK = [*BARE, "data=synthetic", "data.cache.kind=none", "data.source.num_samples=200", "global_batch_size=16"]
QUICK += ["trainer=cpu", "trainer.precision=32-true", "logger=none", "data.loading.num_workers=0"]
QUICK += ["trainer.max_epochs=-1", "trainer.max_steps=1"]
SMALL = ["model.depth=1", "model.embed_dim=12", "model.num_heads=2"]
RECIPES = [file.stem for file in sorted((EXPERIMENTS / "recipe").glob("[!_]*.yaml"))]


@pytest.fixture
def shown(cli):
    """shown(*overrides): what --cfg job prints."""

    def show(*overrides, command="train"):
        done = cli(command, "--cfg", "job", *overrides, tiny=False)
        assert done.status == 0, done.err
        return OmegaConf.create(done.out)

    return show


def test_another_option_has_its_own_values(shown):
    cfg = shown("recipe=cifar10_cpu", "mixing=none", "resolution=full", "optimizer=adamw")
    assert cfg.mixing == {} == cfg.resolution
    assert (cfg.optimizer.lr, "momentum" in cfg.optimizer.algorithm) == (5e-4, False)
    assert (cfg.model.position, cfg.loss.label_smoothing) == ("sincos_2d", 0.0)  # the rest of the recipe


def test_the_recipes_own_choice_keeps_the_recipes_values_also_when_it_is_given(shown):
    cfg = shown("recipe=cifar10_cpu", "mixing=cutmix", "optimizer=muon")
    assert cfg == shown("recipe=cifar10_cpu")
    assert (cfg.mixing.rate, cfg.optimizer.lr, cfg.resolution.scales) == (0.5, 3e-3, [0.75])


def test_what_the_command_line_states_holds_for_the_other_option(shown):
    cfg = shown("recipe=cifar10_cpu", "optimizer=lion", "optimizer.lr=2e-4", "mixing=mixup", "mixing.rate=1")
    assert (cfg.optimizer.lr, cfg.optimizer.weight_decay, cfg.mixing.rate) == (2e-4, 0.5, 1)


def test_another_model_of_the_same_kind_has_its_own_sizes(shown):
    cfg = shown("recipe=cifar10_cpu", "model=vit_mu4")
    own = OmegaConf.load(CONF / "model" / "vit_mu4.yaml")
    assert {name: cfg.model[name] for name in own if name != "defaults"}.items() <= own.items()
    assert (cfg.model.position, cfg.model.class_token, cfg.model.pool) == ("sincos_2d", False, "mean")


def test_another_size_has_its_own_hidden_layers(shown):
    cfg = shown("recipe=cifar10", "model=vit_mu4")
    assert cfg.model.mlp_ratio == OmegaConf.load(CONF / "model" / "_vit.yaml").mlp_ratio
    assert cfg.schedule.final_ratio == 0.01  # the rest of the recipe


def test_a_model_of_another_kind_is_as_it_states(shown):
    cfg = shown("recipe=digits", "model=resnet20", "model.depth=8")
    assert cfg.model.depth == 8
    assert "position" not in cfg.model
    assert cfg.callbacks.ema.decay == 0.99


def test_the_crop_goes_with_the_data(shown):
    cfg = shown("recipe=deit_ti16_imagenet", "data=synthetic")
    assert cfg.crop.train._target_ == "vitlab.data.WholeImage"
    assert "scale" not in cfg.crop.train
    assert "resize_size" not in cfg.crop.eval


@pytest.mark.parametrize("size", [32, 48])
def test_the_centre_of_a_test_image_is_a_share_of_it(shown, size):
    cfg = shown("recipe=deit_ti16_imagenet", "data=synthetic", "crop=random_resized", f"data.image_size={size}")
    assert OmegaConf.create({"crop": cfg.crop, "data": cfg.data}).crop.eval.resize_size == round(size / 0.875)


@pytest.mark.slow
def test_callbacks_that_are_not_chosen_leave_nothing(shown):
    assert "ema" not in shown("recipe=digits", "callbacks=[default]").callbacks
    assert "ema" not in shown("recipe=digits", "callbacks=default").callbacks
    cfg = shown("recipe=digits", "callbacks=[default,ema,swa]")
    assert (cfg.callbacks.ema.decay, "swa" in cfg.callbacks) == (0.99, True)


def test_a_teacher_comes_and_goes_with_the_task(shown):
    teach = ["task=distillation", "teacher.pretrained=taught"]
    assert shown("recipe=digits", *teach).teacher == {"pretrained": "taught"}
    cfg = shown("recipe=digits_distilled", "task=classification")
    assert {"teacher", "needed"} & cfg.keys() == set()
    cfg = shown("recipe=deit_ti16_distilled_imagenet", "model@teacher=_of_run")
    assert cfg.teacher == {"pretrained": None}


def test_a_study_is_of_a_recipe(shown):
    cfg = shown("study=learning_rate", "recipe=cifar10_cpu")
    assert (cfg.model.position, cfg.optimizer.lr, cfg.optimizer.hidden_only) == ("sincos_2d", 3e-3, True)


def test_a_preview_shows_the_same(shown):
    words = ["recipe=cifar10_cpu", "optimizer=adamw", "model=vit_mu4"]
    of_train, of_preview = shown(*words), shown(*words, command="preview")
    assert {key: of_preview[key] for key in of_train} == of_train


OTHERS = [
    "model=resnet50",
    "optimizer=lion",
    "augmentation=color_jitter",
    "loss=focal",
    "schedule=rsqrt",
    "crop=native",
]
BROUGHT = {"task=multilabel": {"loss", "callbacks", "teacher", "needed"}, "data=synthetic": {"crop"}}
BROUGHT |= {"model=resnet50": {"needed"}}


PAIRS = list(zip(RECIPES, itertools.cycle([*OTHERS, *BROUGHT]), strict=False))


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "other"), mostly_slow(PAIRS, quick=8))
def test_another_option_changes_its_own_group_alone(recipe, other):
    """It has what it states without the recipe."""
    group = other.partition("=")[0]
    usual, cfg, plain = (as_written(*words) for words in ([f"recipe={recipe}"], [f"recipe={recipe}", other], [other]))
    others = usual.keys() - BROUGHT.get(other, set()) - {group}
    assert {key: cfg[key] for key in others} == {key: usual[key] for key in others}
    if group != "data":
        assert cfg[group] == plain[group]


def as_written(*overrides):
    return OmegaConf.to_container(unresolved("train", *overrides))


# -- recipes of users


LION = "# @package _global_\ndefaults: [override /optimizer: lion]\noptimizer: {lr: 7}\nmodel: {pool: mean}\n"
ON_OURS = "# @package _global_\ndefaults: [cifar10_cpu]\noptimizer: {lr: 8}\nresolution: {until: [0.5]}\n"
ON_THEIRS = "# @package _global_\ndefaults: [lion]\noptimizer: {weight_decay: 9}\n"


@pytest.fixture
def folders(tmp_path):
    """Two folders of recipes, of which those in the second build on others."""
    for folder, recipes in {"one": {"lion": LION}, "two": {"ours": ON_OURS, "theirs": ON_THEIRS}}.items():
        (tmp_path / folder / "recipe").mkdir(parents=True)
        for name, text in recipes.items():
            (tmp_path / folder / "recipe" / f"{name}.yaml").write_text(text)
    return tmp_path


PATHS = [["--config-dir=one", "hydra.searchpath=[file://two]"], ["hydra.searchpath=[one,two]"]]


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_a_recipe_of_a_users_folder_is_like_ours(shown, folders, path):
    cfg = shown(*path, "recipe=lion")
    assert (cfg.optimizer.algorithm._target_, cfg.optimizer.lr, cfg.model.pool) == ("timm.optim.Lion", 7, "mean")
    cfg = shown(*path, "recipe=lion", "optimizer=sgd", "model=vit_so400m14")
    assert (cfg.optimizer.lr, cfg.model.pool) == (0.03, "map")
    cfg = shown(*path, "recipe=ours")
    assert (cfg.optimizer.lr, cfg.optimizer.hidden_only, cfg.resolution.until, cfg.mixing.rate) == (8, True, [0.5], 0.5)
    cfg = shown(*path, "recipe=ours", "optimizer=lion", "resolution=full")
    assert (cfg.optimizer.lr, cfg.resolution, cfg.mixing.rate) == (1e-4, {}, 0.5)
    cfg = shown(*path, "recipe=theirs")
    assert (cfg.optimizer.lr, cfg.optimizer.weight_decay) == (7, 9)
    cfg = shown(*path, "recipe=theirs", "optimizer=adamw")
    assert (cfg.optimizer.lr, cfg.optimizer.weight_decay) == (5e-4, 0.05)


def test_a_recipe_in_a_package_is_like_ours(shown, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "packed" / "recipe").mkdir(parents=True)
    for folder in ("packed", "packed/recipe"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "packed" / "recipe" / "mine.yaml").write_text(LION)
    path = "hydra.searchpath=[pkg://packed]"
    assert shown(path, "recipe=mine").optimizer.lr == 7
    cfg = shown(path, "recipe=mine", "optimizer=sgd")
    assert (cfg.optimizer.lr, cfg.model.pool) == (0.03, "mean")


@pytest.mark.slow
def test_a_config_that_starts_from_ours_has_recipes(shown, folders):
    (folders / "one" / "mine.yaml").write_text("defaults: [train, override /optimizer: sgd, _self_]\nseed: 3\n")
    cfg = shown("--config-dir=one", "--config-name=mine", "recipe=digits")
    assert (cfg.seed, cfg.optimizer.lr, cfg.model.position) == (3, 0.03, "sincos_2d")


def test_a_study_states_for_the_option_that_it_chooses_itself(shown, folders):
    (folders / "one" / "study").mkdir()
    text = "# @package _global_\ndefaults: [override /mixing: mixup]\n"
    text += "mixing: {mixup_alpha: 4}\nschedule: {final_ratio: 5}\n"
    (folders / "one" / "study" / "mine.yaml").write_text(text)
    cfg = shown("--config-dir=one", "study=mine")
    assert (cfg.mixing.mixup_alpha, cfg.schedule.final_ratio) == (4, 5)
    cfg = shown("--config-dir=one", "study=mine", "recipe=cifar10_cpu")  # which chooses cutmix, and no schedule
    assert (cfg.mixing.mixup_alpha, cfg.schedule.final_ratio) == (0.8, 5)


def test_what_is_stated_of_a_teacher_goes_with_its_task(shown, folders):
    text = "# @package _global_\ndefaults: [override /task: distillation]\nteacher: {mean: [0.5], std: [0.5]}\n"
    (folders / "one" / "recipe" / "taught.yaml").write_text(text)
    assert shown("--config-dir=one", "recipe=taught").teacher == {"pretrained": None, "mean": [0.5], "std": [0.5]}
    assert "teacher" not in shown("--config-dir=one", "recipe=taught", "task=classification")


def test_sizes_within_an_encoder_go_with_the_option(shown, folders):
    text = "# @package _global_\ndefaults: [override /model: mae_xs4]\nmodel: {encoder: {depth: 3, pool: mean}}\n"
    (folders / "one" / "recipe" / "masked.yaml").write_text(text)
    cfg = shown("--config-dir=one", "recipe=masked", "model=mae_b16")
    assert (cfg.model.encoder.depth, cfg.model.encoder.pool) == (12, "mean")


@pytest.mark.slow
# -- what runs


def test_what_is_shown_is_what_runs(cli, shown):
    words = [*QUICK, *SMALL, "recipe=cifar10_cpu", "mixing=none", "resolution=full", "optimizer=adamw"]
    done = cli("train", *words, folder="run", tiny=False)
    assert done.status == 0, done.err
    ran, cfg = OmegaConf.load(done.folder / "config.yaml"), shown(*words)
    for group in ("mixing", "resolution", "optimizer", "loss", "callbacks"):
        assert ran[group] == OmegaConf.to_container(cfg, resolve=True)[group]
    assert ran.model.items() >= {"position": "sincos_2d", "class_token": False, "pool": "mean"}.items()
    told = "recipe=cifar10_cpu: what it states for other options than mixing=none, resolution=full, optimizer=adamw is"
    assert f"{told} left out; --cfg job" in done.out


@pytest.mark.slow
def test_the_jobs_of_a_sweep_each_have_their_options_values(cli, tmp_path):
    words = [*QUICK, *SMALL, "recipe=cifar10_cpu", "resolution=full", "mixing=none"]
    done = cli("train", "-m", *words, "optimizer=adamw,muon", tiny=False)
    assert done.status == 0, done.err
    rates = {OmegaConf.load(file).optimizer.lr for file in tmp_path.glob("runs/*/*/*/config.yaml")}
    assert rates == {5e-4, 3e-3}


@pytest.mark.slow
def test_weights_that_a_recipe_leaves_to_the_user_may_be_null(cli, shown):
    words = ["recipe=vit_b16_cifar10", "data.image_size=32", "crop=whole", "model=vit_mu4"]
    cfg = shown(*words)
    assert (cfg.model.pretrained, cfg.needed["model.pretrained"]) == (None, "weights of vit_mu4, or to null")
    cfg = shown("recipe=few_labels_mae")
    assert (cfg.model.pretrained, cfg.needed["model.pretrained"]) == (None, "a run of recipe=mae_cifar10_cpu")
    for value in ("null", "some"):
        assert shown(*words, f"model.pretrained={value}").model.pretrained == {"null": None}.get(value, value)
    words += ["data.split.val_fraction=0.1", "schedule=constant", "model.pretrained=null"]
    done = cli("train", *QUICK, *words, folder="run", tiny=False)
    assert done.status == 0, done.err


@pytest.mark.slow
@pytest.mark.ci
def test_every_key_that_a_recipe_needs_is_refused_without_a_value(cli):
    needing = {recipe: NEEDED[f"recipe={recipe}"] for recipe in RECIPES if "\nneeded:" in text_of(recipe)}
    assert len(needing) > 3
    for recipe, given in needing.items():
        key = given[0].partition("=")[0]
        refusal = cli("train", *QUICK, f"recipe={recipe}", folder="run", tiny=False)
        assert (refusal.status, f"{key} has no value; set it to a run of recipe=" in refusal.err) == (2, True), (
            refusal.err
        )


def text_of(recipe):
    return (EXPERIMENTS / "recipe" / f"{recipe}.yaml").read_text()


@pytest.mark.slow
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
        (["recipe=vit_b16_cifar10", "model=vit_mu4"], ["set it to weights of vit_mu4, or to null"]),
        (["-m", "recipe=few_labels_mae", "seed=0,1"], ["model.pretrained has no value"]),
        (["recipe=[digits,cifar10]"], ["recipe= takes a single name", "-m recipe=A,B"]),
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
