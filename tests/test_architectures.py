"""Every kind of model in the one training harness: ViT's variants, a ResNet, a model of timm."""

import json
from pathlib import Path

import pytest
from conftest import BARE, evaluated
from test_resume import same_tensors, states

QUICK = [*BARE, "trainer.max_steps=2", "global_batch_size=256", "data.device_batch_size=128"]
CONVOLUTIONS = ["model.patch_size=null", "model.stem_channels=[8,16]"]  # they bring running statistics
KINDS = {
    "resnet": ["model=resnet18", "model.small_images=true"],
    "timm": ["model=timm", "model.name=test_resnet"],
    "timm's vit": ["model=timm", "model.name=test_vit", "model.image_size=32"],
    "convolutional stem": CONVOLUTIONS,
    "distilled": ["model._target_=vitlab.models.DistilledVisionTransformer"],
    "rotary": ["model.position=rotary"],
    "relative": ["model.position=relative"],
    "shared at every layer": ["model.position_place=every_layer_shared"],
    "plain baseline": ["model.position=sincos_2d", "model.class_token=false", "model.pool=mean"],
    "attention pooling": ["model.class_token=false", "model.pool=map", "model.num_registers=2"],
}
SLOW = KINDS.keys() - {"distilled"}


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in KINDS])
def test_a_model_of_any_kind_trains_and_is_scored_again(cli, kind):
    run = cli("train", *QUICK, *KINDS[kind], "callbacks=[default,ema]", folder="run")
    assert run.status == 0, run.err
    tested = json.loads((run.folder / "result.json").read_text())["test"]
    scored = cli("evaluate", "run=run")
    assert scored.status == 0, scored.err
    again = evaluated(run.folder)
    assert {name: again[name] for name in tested} == pytest.approx(tested, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CONVOLUTIONS, KINDS["shared at every layer"]], ids=["convolutions", "shared"])
def test_running_statistics_and_shared_tables_go_on_as_if_nothing_had_been(cli, kind):
    """One epoch of 4 steps at a time is two epochs in one."""
    options = [*QUICK[:-3], *QUICK[-2:], *kind, "callbacks=[default,ema]", "schedule=constant"]
    assert cli("train", *options, "trainer.max_epochs=2", folder="whole").status == 0
    assert cli("train", *options, "trainer.max_epochs=1", folder="parts").status == 0
    assert cli("train", "resume=parts", "trainer.max_epochs=2").status == 0
    whole, parts = states(Path("whole")), states(Path("parts"))
    assert same_tensors(whole[0]["state_dict"], parts[0]["state_dict"])
    assert same_tensors(whole[0]["current_model_state"], parts[0]["current_model_state"])


def test_models_that_take_pixels_refuse_to_be_given_patches(cli):
    run = cli("train", "model=resnet18", "model.patch_size=4")
    assert run.status == 2
    assert "resnet18 takes images, not patches; leave patch_size null" in run.err


def test_a_name_that_nobody_knows_is_answered_with_near_ones(cli):
    run = cli("train", "model=timm", "model.name=vit_tinny_patch16_224")
    assert run.status == 2
    assert "vit_tiny_patch16_224" in run.err
