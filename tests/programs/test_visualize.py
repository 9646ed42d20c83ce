"""Pictures of a model: after its test, and of a finished run by a command."""

import json
from pathlib import Path

import pytest
import torch
from conftest import BARE
from PIL import Image

from vitlab.checkpoints import file
from vitlab.views import VIEWS

PICTURES = {"attention_rollout", "attention_distance", "position_similarity", "embedding_filters"}
VIEWED = [*BARE[:-1], "trainer.max_steps=2", "+trainer.limit_test_batches=1"]


def names(folder):
    return {path.stem for path in folder.glob("*.png")}


@pytest.fixture
def digit(tmp_path):
    for number in (1, 2):
        Image.new("L", (8, 8), 60 * number).save(tmp_path / f"{number}.png")
    return tmp_path / "1.png"


@pytest.mark.slow
def test_the_callback_draws_after_the_test_and_changes_nothing(cli):
    viewed = cli("train", *VIEWED, "callbacks.model_views.num_images=2", folder="viewed")
    assert viewed.status == 0, viewed.err
    assert names(viewed.folder / "pictures") == PICTURES | {"attention_1", "attention_2", "relevance"}
    plain = cli("train", *VIEWED, "~callbacks.model_views", folder="plain")
    results = [json.loads((run.folder / "result.json").read_text())["test"] for run in (viewed, plain)]
    assert results[0] == results[1]
    weights = [file.read(run.folder / "checkpoints" / "latest.ckpt")["state_dict"] for run in (viewed, plain)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_model_that_is_no_vit_is_passed_over_in_one_line(cli):
    run = cli("train", *VIEWED, "model=timm", "model.name=test_resnet", folder="run", pictures=True)
    assert run.status == 0, run.err
    assert "no views: ResNet is not a Vision Transformer" in run.out
    assert not (run.folder / "pictures").exists()
    run = cli("visualize", "run=run", "views=[filters]")
    assert run.status == 2
    assert "ResNet" in run.err


@pytest.mark.ci
@pytest.mark.slow
def test_the_command_draws_into_the_run_or_elsewhere(cli, tmp_path, digits_run, digit):
    run = cli("visualize", f"run={digits_run}", f"images={tmp_path}", "num_images=1", "output=here")
    assert run.status == 0, run.err
    assert names(tmp_path / "here") == PICTURES | {"attention_1"}
    assert "1 of 2 images" in run.out
    run = cli("visualize", f"run={digits_run}", f"images={digit}", "views=[distance]")
    assert run.status == 0, run.err
    before = {path: path.read_bytes() for path in (digits_run / "pictures").iterdir()}
    again = cli("visualize", f"run={digits_run}", f"images={digit}", "views=[distance,relevance]")
    assert {path: path.read_bytes() for path in (digits_run / "pictures").iterdir()} == before
    folders = [Path(one.out.splitlines()[0]).parent for one in (run, again)]  # one for each call
    assert [names(folder) for folder in folders] == [{"attention_distance"}, {"attention_distance", "relevance"}]
    assert all(folder.parent == digits_run / "visualize" for folder in folders)
    run = cli("visualize", f"run={digits_run}", "views=[position,filters]", "output=weights")  # no images needed
    assert names(tmp_path / "weights") == {"position_similarity", "embedding_filters"}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["images=1.png", "views=[attention,heatmap]"], 2, ["views=heatmap", ", ".join(VIEWS)]),
        (["images=1.png", "views=[]"], 2, ["views=[]", ", ".join(VIEWS)]),
        (["images=1.png", "num_images=0"], 2, ["num_images 0"]),
        ([], 2, ["attention, rollout, distance", "images="]),
        (["views=[relevance]"], 2, ["relevance", "images="]),
        (["images=nowhere"], 3, ["images=nowhere"]),
        (["images=broken.png"], 3, ["broken.png"]),
        (["run=nowhere", "images=1.png"], 4, ["nowhere"]),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_sentence(cli, tmp_path, digits_run, digit, arguments, status, said):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    arguments = arguments if any(part.startswith("run=") for part in arguments) else [f"run={digits_run}", *arguments]
    run = cli("visualize", *arguments, "output=out")
    lines = [line for line in run.err.splitlines() if line.strip() and "arn" not in line]
    assert run.status == status, run.err
    assert len(lines) == 1, run.err
    assert all(word in lines[0] for word in said)
    assert not (tmp_path / "out").exists()


def test_a_callback_without_images_is_refused(cli):
    run = cli("train", *VIEWED, "callbacks.model_views.num_images=0", folder="run")
    assert run.status == 2
    assert "num_images 0 is not a whole number of at least 1" in run.err
